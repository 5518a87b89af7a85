"""IR types: interned, so that equality is identity.

scalar    i1 i8 i16 i32 i64 f8e4m3 f8e5m2 f16 bf16 f32 f64; integers have no sign
ptr<T>    address of a scalar T in memory
tile<..>  a block of scalars or pointers with a static shape, `tile<64x32xf32>`
vector<.> one row of lanes, `vector<8xf32>`: only below the nest lowering
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

__all__ = [
    "BF16", "F8E4M3", "F8E5M2", "F16", "F32", "F64", "I1", "I8", "I16", "I32", "I64",
    "PointerType", "ScalarType", "TileType", "Type", "VectorType",
    "element_type", "is_float", "is_integer", "is_pointer", "shape_of", "with_element",
]  # fmt: skip


class Type:
    """Base of all types. Instances are interned by their constructors."""

    __slots__ = ("_text",)
    _interned: ClassVar[dict[object, Any]] = {}
    _text: str

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("IR types are not pickled; print and parse the IR instead")


class ScalarType(Type):
    """An integer without sign or a float; `i1` is the truth value."""

    __slots__ = ("bits", "kind", "name")
    name: str
    kind: str
    bits: int

    def __new__(cls, name: str, kind: str, bits: int) -> ScalarType:
        key = (cls, name)
        found = Type._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            found.name, found.kind, found.bits, found._text = name, kind, bits, name
            Type._interned[key] = found
        return found

    @property
    def size_bytes(self) -> int:
        """Bytes in memory; a truth value takes one."""
        return max(1, self.bits // 8)


I1 = ScalarType("i1", "int", 1)
I8 = ScalarType("i8", "int", 8)
I16 = ScalarType("i16", "int", 16)
I32 = ScalarType("i32", "int", 32)
I64 = ScalarType("i64", "int", 64)
F8E4M3 = ScalarType("f8e4m3", "float", 8)
F8E5M2 = ScalarType("f8e5m2", "float", 8)
F16 = ScalarType("f16", "float", 16)
BF16 = ScalarType("bf16", "float", 16)
F32 = ScalarType("f32", "float", 32)
F64 = ScalarType("f64", "float", 64)

SCALARS: dict[str, ScalarType] = {
    scalar.name: scalar for scalar in (I1, I8, I16, I32, I64, F8E4M3, F8E5M2, F16, BF16, F32, F64)
}


class PointerType(Type):
    """Address of one `pointee` scalar; arithmetic counts in elements."""

    __slots__ = ("pointee",)
    pointee: ScalarType

    def __new__(cls, pointee: ScalarType) -> PointerType:
        key = (cls, pointee)
        found = Type._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            found.pointee, found._text = pointee, f"ptr<{pointee}>"
            Type._interned[key] = found
        return found


class _Shaped(Type):
    __slots__ = ("element", "shape")
    _keyword: ClassVar[str]
    shape: tuple[int, ...]
    element: ScalarType | PointerType

    def __new__(cls, shape: tuple[int, ...], element: Type) -> _Shaped:
        shape = tuple(shape)
        key = (cls, shape, element)
        found = Type._interned.get(key)
        if found is None:
            assert isinstance(element, (ScalarType, PointerType)), f"a {cls._keyword} of {element}"
            found = object.__new__(cls)
            found.shape, found.element = shape, element
            dims = "x".join(map(str, shape))
            found._text = f"{cls._keyword}<{dims}x{element}>"
            Type._interned[key] = found
        return found

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class TileType(_Shaped):
    """A block of scalars or pointers with a static shape of rank >= 1."""

    __slots__ = ()
    _keyword = "tile"


class VectorType(_Shaped):
    """One row of lanes; the shape has exactly one dimension."""

    __slots__ = ()
    _keyword = "vector"

    @property
    def lanes(self) -> int:
        return self.shape[0]


def element_type(type_: Type) -> Type:
    """The scalar or pointer inside a tile or vector; any other type itself."""
    return type_.element if isinstance(type_, _Shaped) else type_


def shape_of(type_: Type) -> tuple[int, ...]:
    """The shape of a tile or vector; () for scalars and pointers."""
    return type_.shape if isinstance(type_, _Shaped) else ()


def with_element(type_: Type, element: Type) -> Type:
    """`type_` with its element replaced, keeping tile or vector shape."""
    return type(type_)(type_.shape, element) if isinstance(type_, _Shaped) else element


def is_float(type_: Type) -> bool:
    element = element_type(type_)
    return isinstance(element, ScalarType) and element.kind == "float"


def is_integer(type_: Type) -> bool:
    element = element_type(type_)
    return isinstance(element, ScalarType) and element.kind == "int"


def is_pointer(type_: Type) -> bool:
    return isinstance(element_type(type_), PointerType)
