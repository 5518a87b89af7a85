"""Operations on blocks of values: what a kernel in the language becomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from isthmus.ir.dialects import rules
from isthmus.ir.dialects.rules import require
from isthmus.ir.optable import define
from isthmus.ir.types import (
    F32,
    F64,
    I1,
    I32,
    PointerType,
    TileType,
    Type,
    element_type,
    is_float,
    is_integer,
    is_pointer,
    shape_of,
    with_element,
)

Types = Sequence[Type]
Attrs = dict[str, Any]


def _tile(type_: Type) -> TileType:
    require(isinstance(type_, TileType), f"expected a tile, got {type_}")
    return type_  # type: ignore[return-value]


for _name, _doc in (
    ("program_id", "This program's index along `axis` (0, 1, 2)."),
    ("num_programs", "Programs in the grid along `axis`."),
):
    define(f"tile.{_name}", "", _doc, attrs={"axis": int},
           infer=lambda _t, _a: [I32], traits="pure")  # fmt: skip

define("tile.arange", "", "Consecutive integers from `start`, `end` excluded.",
       attrs={"start": int, "end": int},
       infer=lambda _t, a: [TileType((a["end"] - a["start"],), I32)], traits="pure")  # fmt: skip


def _splat(types: Types, results: Types, _attrs: Attrs) -> None:
    require(
        not shape_of(types[0]) and element_type(results[0]) is types[0],
        f"a scalar fills a tile of its type, got {types[0]} to {results[0]}",
    )


define("tile.splat", "scalar", "A tile filled with a scalar.", check=_splat, traits="pure")


def _broadcast(types: Types, results: Types, _attrs: Attrs) -> None:
    source, target = _tile(types[0]), _tile(results[0])
    require(
        source.element is target.element
        and source.rank == target.rank
        and all(a in (b, 1) for a, b in zip(source.shape, target.shape, strict=True)),
        f"only dimensions of size 1 grow, got {source} to {target}",
    )


define("tile.broadcast", "value", "Grow dimensions of size 1 by repetition.",
       check=_broadcast, traits="pure")  # fmt: skip


def _expand_dims(types: Types, attrs: Attrs) -> list[Type]:
    shape, axis = list(shape_of(types[0])), attrs["axis"]
    require(0 <= axis <= len(shape), f"axis {axis} is outside 0..{len(shape)}")
    shape.insert(axis, 1)
    return [TileType(tuple(shape), element_type(types[0]))]


define("tile.expand_dims", "value", "Insert a dimension of size 1.",
       attrs={"axis": int}, infer=_expand_dims, traits="pure")  # fmt: skip


def _reshape(types: Types, results: Types, _attrs: Attrs) -> None:
    require(
        element_type(types[0]) is element_type(results[0])
        and math.prod(shape_of(types[0])) == math.prod(shape_of(results[0])),
        f"a reshape keeps elements, got {types[0]} to {results[0]}",
    )


define("tile.reshape", "value", "The same elements in row-major order under another shape.",
       check=_reshape, traits="pure")  # fmt: skip


def _trans(types: Types, attrs: Attrs) -> list[Type]:
    shape, order = _tile(types[0]).shape, tuple(attrs["order"])
    require(sorted(order) == list(range(len(shape))), f"order {order} is no permutation of {shape}")
    return [TileType(tuple(shape[axis] for axis in order), element_type(types[0]))]


define("tile.trans", "value",
       "Permute dimensions: result dimension i is source dimension order[i].",
       attrs={"order": tuple}, infer=_trans, traits="pure")  # fmt: skip


def _cat(types: Types, _attrs: Attrs) -> list[Type]:
    tile = _tile(rules.same_types(types))
    return [TileType((tile.shape[0] * 2, *tile.shape[1:]), tile.element)]


define("tile.cat", "lhs rhs", "Concatenate along the first dimension.", infer=_cat, traits="pure")
define("tile.join", "lhs rhs", "Stack along a new last dimension of size 2.",
       infer=lambda t, _a: [TileType((*shape_of(rules.same_types(t)), 2), element_type(t[0]))],
       traits="pure")  # fmt: skip


def _split(types: Types, _attrs: Attrs) -> list[Type]:
    tile = _tile(types[0])
    require(tile.shape[-1] == 2, f"the last dimension must be 2, got {tile}")
    rest = tile.shape[:-1]
    part = TileType(rest, tile.element) if rest else tile.element
    return [part, part]


define("tile.split", "value", "The two halves of a last dimension of size 2.",
       infer=_split, traits="pure")  # fmt: skip


def _memory(types: Types) -> tuple[Type, Type]:
    """(value type, mask type) that belong to the pointer operand."""
    require(is_pointer(types[0]), f"expected pointers, got {types[0]}")
    pointer = element_type(types[0])
    assert isinstance(pointer, PointerType)
    return with_element(types[0], pointer.pointee), with_element(types[0], I1)


def _load(types: Types, _attrs: Attrs) -> list[Type]:
    value, mask = _memory(types)
    if len(types) > 1:
        require(types[1] is mask, f"the mask must be {mask}, got {types[1]}")
    if len(types) > 2:
        require(types[2] is value, f"the fill value must be {value}, got {types[2]}")
    return [value]


HINTS = {"cache?": str, "eviction?": str, "volatile?": bool}
define("tile.load", "pointer mask? other?",
       "Read memory; masked-off lanes touch nothing and give `other`, or 0 without it.",
       attrs=HINTS, infer=_load, traits="reads")  # fmt: skip


def _store(types: Types, _attrs: Attrs) -> list[Type]:
    value, mask = _memory(types)
    require(types[1] is value, f"the value must be {value}, got {types[1]}")
    if len(types) > 2:
        require(types[2] is mask, f"the mask must be {mask}, got {types[2]}")
    return []


define("tile.store", "pointer value mask?", "Write memory; masked-off lanes touch nothing.",
       attrs=HINTS, infer=_store, traits="writes")  # fmt: skip

#: What `tile.atomic_rmw` can do, and the element kind it needs.
ATOMIC_KINDS = ("add", "fadd", "maxs", "mins", "maxu", "minu", "and", "or", "xor", "xchg")


def _atomic_rmw(types: Types, attrs: Attrs) -> list[Type]:
    _store(types, attrs)
    require(attrs["kind"] in ATOMIC_KINDS, f"unknown atomic {attrs['kind']!r}")
    return [types[1]]


define("tile.atomic_rmw", "pointer value mask?",
       "Read, combine and write as one step per lane, in row-major lane order; gives the old value "
       "(0 where masked off).",
       attrs={"kind": str, "sem?": str, "scope?": str}, infer=_atomic_rmw,
       traits="reads writes")  # fmt: skip


def _atomic_cas(types: Types, attrs: Attrs) -> list[Type]:
    _store((types[0], types[1]), attrs)
    require(types[1] is types[2], f"compare and value differ: {types[1]}, {types[2]}")
    return [types[1]]


define("tile.atomic_cas", "pointer compare value",
       "Write `value` where memory equals `compare`; gives the old value.",
       attrs={"sem?": str, "scope?": str}, infer=_atomic_cas, traits="reads writes")  # fmt: skip

#: Named combine functions of reductions and scans: kind -> (element kind, identity text).
REDUCE_KINDS = {
    "addi": "int", "addf": "float", "muli": "int", "mulf": "float",
    "maxsi": "int", "minsi": "int", "maxui": "int", "minui": "int",
    "maxnumf": "float", "minnumf": "float", "maximumf": "float", "minimumf": "float",
    "andi": "int", "ori": "int", "xori": "int",
}  # fmt: skip


def _check_combine(types: Types, attrs: Attrs) -> tuple[int, ...]:
    shape = _tile(types[0]).shape
    require(0 <= attrs["axis"] < len(shape), f"axis {attrs['axis']} is outside 0..{len(shape) - 1}")
    require(all(shape_of(t) == shape for t in types), "all operands must have one shape")
    kind = attrs["kind"]
    require(kind == "region" or kind in REDUCE_KINDS, f"unknown combine {kind!r}")
    if kind != "region":
        require(len(types) == 1, f"{kind} combines one operand, got {len(types)}")
        good = is_integer(types[0]) if REDUCE_KINDS[kind] == "int" else is_float(types[0])
        require(good, f"{kind} does not combine {types[0]}")
    return shape


def _reduce(types: Types, attrs: Attrs) -> list[Type]:
    shape = list(_check_combine(types, attrs))
    del shape[attrs["axis"]]
    return [TileType(tuple(shape), element_type(t)) if shape else element_type(t) for t in types]


define("tile.reduce", "values*",
       "Combine along `axis`; kind names an arith operation, or is 'region': then the region takes "
       "left scalars then right scalars and yields the combination. The order is the target's, "
       "the same in every run.",
       attrs={"axis": int, "kind": str}, infer=_reduce, regions=1, traits="pure")  # fmt: skip


def _scan(types: Types, attrs: Attrs) -> list[Type]:
    _check_combine(types, attrs)
    return list(types)


define("tile.scan", "values*",
       "Running combination along `axis`, from the end when `reverse`; kinds as in tile.reduce.",
       attrs={"axis": int, "kind": str, "reverse?": bool},
       infer=_scan, regions=1, traits="pure")  # fmt: skip


def _dot(types: Types, _attrs: Attrs) -> list[Type]:
    lhs, rhs, acc = (_tile(t) for t in types)
    require(lhs.rank == rhs.rank == acc.rank and lhs.rank in (2, 3), "dot takes rank 2 or 3")
    require(
        lhs.shape[:-2] == rhs.shape[:-2] == acc.shape[:-2]
        and lhs.shape[-1] == rhs.shape[-2]
        and acc.shape[-2:] == (lhs.shape[-2], rhs.shape[-1]),
        f"shapes do not multiply: {lhs} by {rhs} into {acc}",
    )
    require(
        (is_float(lhs) and is_float(rhs) and acc.element in (F32, F64))
        or (is_integer(lhs) and is_integer(rhs) and acc.element is I32)
        or (is_float(acc) and is_float(lhs)),
        f"element types do not multiply: {lhs} by {rhs} into {acc}",
    )
    return [acc]


define("tile.dot", "lhs rhs acc",
       "Matrix product added to `acc`: [.., M, K] by [.., K, N] into [.., M, N]; products and sums "
       "in the type of `acc`.",
       attrs={"precision?": str}, infer=_dot, traits="pure")  # fmt: skip


def _gather(types: Types, attrs: Attrs) -> list[Type]:
    source, index = _tile(types[0]), _tile(types[1])
    require(is_integer(index) and source.rank == index.rank, f"bad index {index} for {source}")
    require(0 <= attrs["axis"] < source.rank, f"axis {attrs['axis']} is outside the rank")
    return [TileType(index.shape, source.element)]


define("tile.gather", "source index", "source[.., index, ..] along `axis`.",
       attrs={"axis": int}, infer=_gather, traits="pure")  # fmt: skip
define("tile.histogram", "values mask?", "Counts of 0..bins-1 as i32.",
       attrs={"bins": int},
       infer=lambda _t, a: [TileType((a["bins"],), I32)], traits="pure")  # fmt: skip
define("tile.assert", "condition mask?",
       "Stop the program with `message` where the condition is false.",
       attrs={"message": str}, infer=lambda _t, _a: [], traits="writes")  # fmt: skip
define("tile.print", "values*", "Print `prefix` and the values, per program.",
       attrs={"prefix": str}, infer=lambda _t, _a: [], traits="writes")  # fmt: skip
define("tile.barrier", "", "Order memory accesses of this program.",
       infer=lambda _t, _a: [], traits="reads writes")  # fmt: skip
