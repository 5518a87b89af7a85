"""The source of fused kernels: what it loads, masks and stores."""

from __future__ import annotations

import linecache
from dataclasses import replace

import pytest

from isthmus.core.dtypes import DTYPES
from isthmus.core.errors import InternalError
from isthmus.ops.fused import (
    Group,
    Input,
    Literal,
    Result,
    Step,
    epilogue_access,
    epilogue_function,
    group_cost,
    kernel_text,
    plan_group,
    plan_pointwise,
)
from isthmus.ops.standard import TensorSpec, View
from isthmus.targets import host_target

F32, BF16, BOOL = DTYPES["f32"], DTYPES["bf16"], DTYPES["bool"]
TARGET = replace(host_target(), cores=2)
view = View.contiguous
ADD = Group((Step("add", (Input(0), Input(1))),), (Result(0),))


def text(group: Group, inputs: list[View], outputs: list[View]) -> str:
    return kernel_text(group, inputs, outputs, TARGET)


def test_contiguous_tensors_are_walked_as_one_line() -> None:
    shape = (8, 16, 64)
    source = text(ADD, [view(shape, F32)] * 2, [view(shape, F32)])
    assert "places" in source
    assert "rows" not in source


def test_a_block_that_divides_needs_no_mask() -> None:
    assert "mask" not in text(ADD, [view((65536,), F32)] * 2, [view((65536,), F32)])
    odd = (65537,)
    source = text(ADD, [view(odd, F32)] * 2, [view(odd, F32)])
    assert "mask = places < SIZE" in source


def test_repeated_row_is_loaded_once_per_block() -> None:
    source = text(ADD, [view((64, 48), F32), view((48,), F32)], [view((64, 48), F32)])
    assert "x1 = tl.load(x1_ptr + columns)" in source


def test_single_number_is_loaded_as_a_scalar() -> None:
    source = text(ADD, [view((100,), F32), view((), F32)], [view((100,), F32)])
    assert "x1 = tl.load(x1_ptr)\n" in source


def test_narrow_floats_are_computed_wide() -> None:
    source = text(ADD, [view((64,), BF16)] * 2, [view((64,), BF16)])
    assert source.count(".to(tl.float32)") == 2


def test_cast_to_a_narrow_float_rounds_before_it_goes_on() -> None:
    group = Group(
        (Step("cast", (Input(0),), (("dtype", "bf16"),)), Step("neg", (Result(0),))), (Result(1),)
    )
    source = text(group, [view((64,), F32)], [view((64,), BF16)])
    assert "pointwise.cast(x0, dtype='bf16').to(tl.float32)" in source


def test_literals_are_typed_and_may_be_infinite() -> None:
    group = Group(
        (Step("where", (Input(0), Literal(float("-inf"), F32), Literal(0.1, BF16))),), (Result(0),)
    )
    with pytest.raises(Exception, match="different dtypes"):
        text(group, [view((8,), BOOL)], [view((8,), F32)])
    group = Group(
        (Step("where", (Input(0), Literal(float("-inf"), BF16), Literal(0.1, BF16))),), (Result(0),)
    )
    source = text(group, [view((8,), BOOL)], [view((8,), BF16)])
    assert 'tl.full((), float("-inf"), tl.float32)' in source
    assert "0.10009765625" in source


def test_many_small_blocks_share_a_program() -> None:
    strided = View((64, 4, 8, 8), F32, (256, 8, 32, 1))
    plan = plan_group(ADD, [strided, view((64, 4, 8, 8), F32)], [view((64, 4, 8, 8), F32)], TARGET)
    (launch,) = plan.launches
    assert launch.args["OUTER"] > 1
    assert launch.grid[2] == -(-256 // launch.args["OUTER"])


def test_blocks_are_powers_of_two_where_the_target_needs_them() -> None:
    target = replace(TARGET, any_block_size=False)
    plan = plan_group(ADD, [view((1000,), F32)] * 2, [view((1000,), F32)], target)
    assert plan.launches[0].args["BLOCK"] == 1024


def test_enough_programs_for_all_cores() -> None:
    plan = plan_group(ADD, [view((1 << 20,), F32)] * 2, [view((1 << 20,), F32)], TARGET)
    assert plan.launches[0].grid[0] >= 4 * TARGET.cores


def test_source_is_kept_for_tracebacks() -> None:
    plan = plan_pointwise("gelu", [view((64,), F32)], [view((64,), F32)], {}, TARGET)
    kernel = plan.launches[0].kernel
    assert kernel.source.name == "gelu_kernel"
    assert "pointwise.gelu" in "".join(linecache.getlines(kernel.source.file))
    again = plan_pointwise("gelu", [view((64,), F32)], [view((64,), F32)], {}, TARGET)
    assert again.launches[0].kernel is kernel


def test_empty_output_needs_no_launch() -> None:
    assert plan_group(ADD, [view((0, 3), F32)] * 2, [view((0, 3), F32)], TARGET).launches == ()


def test_outputs_of_two_shapes_are_refused() -> None:
    with pytest.raises(InternalError, match="differ in shape"):
        plan_group(ADD, [view((4,), F32)] * 2, [view((4,), F32), view((2, 2), F32)], TARGET)


def test_how_an_epilogue_reads() -> None:
    shape = (2, 6, 8)
    assert epilogue_access(view((2, 6, 8), F32), shape) == "full"
    assert epilogue_access(view((8,), F32), shape) == "row"
    assert epilogue_access(view((), F32), shape) == "scalar"
    assert epilogue_access(view((6, 1), F32), shape) is None
    assert epilogue_access(View((2, 6, 8), F32, (48, 1, 6)), shape) is None


def test_epilogue_reads_stores_and_gives_back() -> None:
    group = Group(
        (Step("add", (Input(0), Input(1))), Step("relu", (Result(0),))), (Result(1), Result(0))
    )
    helper = epilogue_function(group, [F32, F32], ["row"], [1])
    lines = [line.strip() for line in helper.source.text.splitlines()[1:]]
    assert lines == [
        "x1 = tl.load(extra0_ptr + columns, mask=mask)",
        "v0 = pointwise.add(acc, x1)",
        "v1 = pointwise.relu(v0)",
        "tl.store(extra1_ptr + offsets, v0, mask=mask)",
        "return v1",
    ]


def test_cost_counts_every_step_and_each_tensor_once() -> None:
    steps = (Step("add", (Input(0), Input(1))), Step("mul", (Result(0), Input(0))))
    group = Group(steps, (Result(1),))
    spec = TensorSpec((10, 10), F32)
    cost = group_cost(group, [spec, spec], [spec])
    assert (cost.flops, cost.bytes_moved) == (200, 1200)
