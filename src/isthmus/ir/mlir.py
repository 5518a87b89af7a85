"""Export in MLIR's generic form, for MLIR tools that allow unregistered dialects.

Tiles become tensors, `ptr<f32>` becomes the opaque type `!isthmus.ptr<f32>`, functions become
`func.func`; operations keep their names behind the prefix `isthmus.`, for their meaning is ours.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from isthmus.ir.core import Function, Module, Operation, Region, Value
from isthmus.ir.types import PointerType, TileType, Type, VectorType, element_type, is_float

__all__ = ["export"]

_NAMES = {"f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2"}


def export(program: Function | Module) -> str:
    """The program as an MLIR module in generic form."""
    functions = program if isinstance(program, Module) else [program]
    lines = ['"builtin.module"() ({']
    for function in functions:
        lines += _Exporter().function(function)
    lines.append("}) : () -> ()")
    return "\n".join(lines) + "\n"


def _type(type_: Type) -> str:
    if isinstance(type_, PointerType):
        return f"!isthmus.ptr<{_type(type_.pointee)}>"
    if isinstance(type_, (TileType, VectorType)):
        dims = "x".join(map(str, type_.shape))
        keyword = "tensor" if isinstance(type_, TileType) else "vector"
        return f"{keyword}<{dims}x{_type(type_.element)}>"
    return _NAMES.get(str(type_), str(type_))


def _types(values: list[Value]) -> str:
    return f"({', '.join(_type(value.type) for value in values)})"


def _attribute(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_attribute, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return _number(value, "f64")
    return _string(str(value))


def _string(text: str) -> str:
    """A literal whose unusual bytes are written as two hexadecimal digits."""
    written = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}"
        for byte in text.encode()
    )
    return f'"{"".join(written)}"'


def _number(value: float, type_: str) -> str:
    if math.isfinite(value):
        text = repr(value)
        mantissa, _, exponent = text.partition("e")
        mantissa += "" if "." in mantissa else ".0"
        return f"{mantissa}{'e' if exponent else ''}{exponent} : {type_}"
    return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X} : f64"


def _constant(op: Operation) -> str:
    element = element_type(op.result.type)
    value = op.attrs["value"]
    if not is_float(element):
        return (
            f"{int(value)} : {_type(element)}" if str(element) != "i1" else _attribute(bool(value))
        )
    return _number(value, "f64")


class _Exporter:
    def __init__(self) -> None:
        self.names: dict[Value, str] = {}

    def name(self, value: Value) -> str:
        return self.names.setdefault(value, f"%{len(self.names)}")

    def function(self, function: Function) -> list[str]:
        facts = [self.facts(attrs) for attrs in function.arg_attrs]
        properties = [
            f"sym_name = {_string(function.name)}",
            f"function_type = {_types(function.args)} -> ()",
        ]
        if any(function.arg_attrs):
            properties.append(f"arg_attrs = [{', '.join(facts)}]")
        return [
            f'  "func.func"() <{{{", ".join(properties)}}}> ({{',
            *self.region(function.body, "    "),
            "  }) : () -> ()",
        ]

    def facts(self, attrs: dict[str, Any]) -> str:
        return f"{{{', '.join(f'isthmus.{k} = {_attribute(v)}' for k, v in attrs.items())}}}"

    def region(self, region: Region, indent: str) -> list[str]:
        arguments = ", ".join(f"{self.name(arg)} : {_type(arg.type)}" for arg in region.args)
        lines = [f"{indent[2:]}^bb0({arguments}):"] if region.args else []
        for op in region.ops:
            lines += self.operation(op, indent)
        return lines

    def operation(self, op: Operation, indent: str) -> list[str]:
        operands = ", ".join(map(self.name, op.operands))
        results = ", ".join(map(self.name, op.results))
        name = op.name if op.name == "func.return" else f"isthmus.{op.name}"
        head = f'{indent}{results}{" = " if results else ""}"{name}"({operands})'
        attrs = {
            key: _constant(op) if op.name == "arith.constant" else _attribute(value)
            for key, value in op.attrs.items()
        }
        tail = f" {{{', '.join(f'{k} = {v}' for k, v in attrs.items())}}}" if attrs else ""
        tail += f" : {_types(op.operands)} -> {_types(op.results)}"
        if not op.regions:
            return [head + tail]
        lines = [head + " ({"]
        for number, region in enumerate(op.regions):
            if number:
                lines.append(f"{indent}}}, {{")
            lines += self.region(region, indent + "  ")
        return [*lines, f"{indent}}}){tail}"]
