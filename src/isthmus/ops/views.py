"""Views and constants: no kernels; the executor folds views into strides and fills constants
before the first step."""

from __future__ import annotations

import numpy as np

from isthmus.core.errors import ShapeError
from isthmus.ops.rules import (
    Arrays,
    Specs,
    as_dtype,
    broadcast_shapes,
    integer_type,
    normal_axis,
    prod,
    real,
    round_to,
    tolerances,
)
from isthmus.ops.standard import REQUIRED, Attrs, Cost, Operator, TensorSpec, register

__all__: list[str] = []


def _no_cost(_inputs: Specs, _outputs: object, _attrs: Attrs) -> Cost:
    return Cost(0, 0)


def _keep(array: object) -> np.ndarray:
    given = np.asarray(array)
    return given if given.dtype.kind in "iub" else real(given)


def _reshape(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    shape = tuple(attrs["shape"])
    if min(shape, default=0) < 0 or prod(shape) != x.size:
        raise ShapeError(
            f"reshape: {list(x.shape)} has {x.size} elements, {list(shape)} has {prod(shape)}"
        )
    return [TensorSpec(shape, x.dtype)]


def _transpose(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    order = tuple(attrs["order"])
    if sorted(order) != list(range(len(x.shape))):
        raise ShapeError(
            f"transpose: order {list(order)} is no permutation of the {len(x.shape)} dimensions"
        )
    return [TensorSpec(tuple(x.shape[axis] for axis in order), x.dtype)]


def _broadcast_to(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    shape = tuple(attrs["shape"])
    if broadcast_shapes("broadcast_to", [x.shape, shape]) != shape:
        raise ShapeError(f"broadcast_to: {list(x.shape)} does not grow to {list(shape)}")
    return [TensorSpec(shape, x.dtype)]


def _slice(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    axis = normal_axis("slice", attrs["axis"], len(x.shape))
    start, stop, step = attrs["start"], attrs["stop"], attrs["step"]
    if not (0 <= start <= stop <= x.shape[axis] and step >= 1):
        raise ShapeError(
            f"slice: [{start}:{stop}:{step}] along axis {axis} of {list(x.shape)}; "
            "needs 0 <= start <= stop <= size and step >= 1"
        )
    length = -(-(stop - start) // step)
    return [TensorSpec((*x.shape[:axis], length, *x.shape[axis + 1 :]), x.dtype)]


def _slice_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x = _keep(arrays[0])
    index = [slice(None)] * x.ndim
    index[attrs["axis"]] = slice(attrs["start"], attrs["stop"], attrs["step"])
    return [x[tuple(index)]]


_EXACT = tolerances(0, "elements are not changed")
for _name, _doc, _attrs, _infer, _reference in (
    ("reshape", "The same elements in row-major order under another shape.",
     {"shape": REQUIRED}, _reshape, lambda a, k: [_keep(a[0]).reshape(tuple(k["shape"]))]),
    ("transpose", "Permute dimensions: dimension i of the result is dimension order[i] of x.",
     {"order": REQUIRED}, _transpose, lambda a, k: [_keep(a[0]).transpose(tuple(k["order"]))]),
    ("broadcast_to", "Repeat dimensions of size 1, and new leading ones.",
     {"shape": REQUIRED}, _broadcast_to,
     lambda a, k: [np.broadcast_to(_keep(a[0]), tuple(k["shape"]))]),
    ("slice", "Every step-th element from start to stop along one axis.",
     {"axis": REQUIRED, "start": 0, "stop": REQUIRED, "step": 1}, _slice, _slice_reference),
):  # fmt: skip
    register(
        Operator(name=_name, doc=_doc, inputs=("x",), infer=_infer, reference=_reference,
                 cost=_no_cost, attrs=_attrs, tolerance=_EXACT)
    )  # fmt: skip


def _constant_reference(_arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    dtype, shape = as_dtype(attrs["dtype"]), tuple(attrs["shape"])
    if dtype.is_float:
        return [round_to(np.full(shape, attrs["value"], np.float64), dtype)]
    return [np.full(shape, attrs["value"], integer_type(dtype))]


def _arange_reference(_arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    dtype = as_dtype(attrs["dtype"])
    values = attrs["start"] + attrs["step"] * np.arange(attrs["length"])
    return [round_to(real(values), dtype) if dtype.is_float else values.astype(integer_type(dtype))]


register(
    Operator(
        name="constant",
        doc="A tensor filled with one value.",
        inputs=(),
        infer=lambda _specs, attrs: [TensorSpec(tuple(attrs["shape"]), as_dtype(attrs["dtype"]))],
        reference=_constant_reference,
        cost=_no_cost,
        attrs={"value": REQUIRED, "shape": (), "dtype": REQUIRED},
        tolerance=_EXACT,
        gradient="none",
    )
)
register(
    Operator(
        name="arange",
        doc="start + step * i for i below length.",
        inputs=(),
        infer=lambda _specs, attrs: [TensorSpec((attrs["length"],), as_dtype(attrs["dtype"]))],
        reference=_arange_reference,
        cost=_no_cost,
        attrs={"start": 0, "step": 1, "length": REQUIRED, "dtype": "i64"},
        tolerance=_EXACT,
        gradient="none",
    )
)
