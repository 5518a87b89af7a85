"""Every operator of the standard against its float64 reference, compiled for this machine.

The cases come from tests/support/operator_cases.py: dtypes by profiles (contiguous, transposed,
stride 0, odd sizes, one element, zero size, NaN and infinities). Outputs lie between guard zones.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
from operator_cases import GENERATORS, MADE, NO_KERNEL, cases, dtypes
from operator_runs import assert_close, run

from isthmus.ops import OPERATORS
from isthmus.ops.fused import plan_pointwise
from isthmus.targets import host_target

#: Operators whose kernels take long to compile: f16 and f64 only in `make test-all`.
LONG = (
    "attention", "attention_backward", "matmul", "sum", "mean", "max", "min", "prod", "argmax",
    "cross_entropy", "cross_entropy_backward", "layer_norm_backward",
)  # fmt: skip
WITH_KERNEL = [
    pytest.param(
        name,
        dtype,
        id=f"{name}-{dtype}",
        marks=[pytest.mark.slow] if name in LONG and dtype in ("f16", "f64") else [],
    )
    for name in OPERATORS
    if name not in (*NO_KERNEL, *MADE)
    for dtype in dtypes(name)
]


@pytest.mark.parametrize(("name", "dtype"), WITH_KERNEL)
@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
def test_operator(name, dtype):
    op, target = OPERATORS[name], host_target()
    plan = partial(plan_pointwise, name) if op.is_pointwise else None
    for case in cases(name, dtype):
        expected = op.reference(case.inputs, case.attrs)
        actual = run(op, case.inputs, case.attrs, target, plan=plan)
        for index, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
            assert_close(op, got, wanted, dtype, f"{name} {dtype} {case.name} output {index}")


def test_every_operator_has_a_kernel_and_cases():
    missing = [
        name
        for name, op in OPERATORS.items()
        if name not in (*NO_KERNEL, *MADE)
        and not (op.is_pointwise or (op.plan is not None and name in GENERATORS))
    ]
    assert not missing


@pytest.mark.parametrize("name", ["sum", "layer_norm_backward", "embedding_backward", "matmul"])
def test_sums_do_not_depend_on_the_number_of_cores(name):
    op, target = OPERATORS[name], host_target()
    case = cases(name, "f32")[0]
    one, many = (
        run(op, case.inputs, case.attrs, dataclasses.replace(target, cores=cores))
        for cores in (1, 16)
    )
    for first, second in zip(one, many, strict=True):
        np.testing.assert_array_equal(first, second)


def test_embedding_gradient_is_the_same_in_every_run():
    # FIELD_REPORTS B28
    op, target = OPERATORS["embedding_backward"], host_target()
    random = np.random.default_rng(3)
    grad = random.standard_normal((10_000, 70)).astype(np.float32)
    index = random.integers(0, 7, 10_000)
    first, *others = (run(op, [grad, index], {"rows": 7}, target)[0] for _ in range(10))
    in_order = np.zeros((7, 70), np.float32)
    for position, row in enumerate(index):
        in_order[row] += grad[position]
    np.testing.assert_array_equal(first, in_order)
    for other in others:
        np.testing.assert_array_equal(first, other)
