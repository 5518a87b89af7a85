"""IR as text: MLIR-like, and exact: `isthmus.ir.parser` reads back the same program.

    func @add(%x: ptr<f32> {divisibility = 16}, %n: i32) {
      %0 = tile.program_id {axis = 0} : () -> (i32)
      %1 = arith.constant {value = 64} : () -> (i32)
      %2 = arith.muli %0, %1 : (i32, i32) -> (i32)
      %3 = scf.for %n, %1, %1, %2 : (i32, i32, i32, i32) -> (i32) (%i: i32, %acc: i32) {
        scf.yield %acc : (i32) -> ()
      }
      func.return : () -> ()
    }

Every operation prints as results = name operands {attributes} : (operand types) -> (result types),
then its regions with their arguments. Source locations are not printed.
"""

from __future__ import annotations

import re
from typing import Any

from isthmus.ir.core import Function, Module, Operation, Region, Value

__all__ = ["print_function", "print_module", "print_operation"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Printer:
    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.count = 0
        self.lines: list[str] = []

    def name(self, value: Value) -> str:
        """The name of a value: its hint where that is free, else a number."""
        found = self.names.get(value)
        if found is None:
            hint = value.hint
            if hint is not None and _NAME.fullmatch(hint):
                found, suffix = hint, 0
                while found in self.taken:
                    suffix += 1
                    found = f"{hint}_{suffix}"
            else:
                found = str(self.count)
                self.count += 1
            self.taken.add(found)
            self.names[value] = found
        return f"%{found}"

    def typed(self, value: Value) -> str:
        return f"{self.name(value)}: {value.type}"

    def region(self, region: Region, indent: str) -> None:
        for op in region.ops:
            self.operation(op, indent)

    def operation(self, op: Operation, indent: str) -> None:
        operands = ", ".join(self.name(value) for value in op.operands)
        results = ", ".join(self.name(value) for value in op.results)
        line = indent + (f"{results} = " if results else "") + op.name
        if operands:
            line += f" {operands}"
        if op.attrs:
            line += f" {_attributes(op.attrs)}"
        inputs = ", ".join(str(value.type) for value in op.operands)
        outputs = ", ".join(str(value.type) for value in op.results)
        line += f" : ({inputs}) -> ({outputs})"
        for number, region in enumerate(op.regions):
            arguments = ", ".join(self.typed(argument) for argument in region.args)
            line += f" ({arguments}) {{" if number == 0 else f"{indent}}} ({arguments}) {{"
            self.lines.append(line)
            self.region(region, indent + "  ")
            line = ""
        self.lines.append(indent + "}" if op.regions else line)

    def function(self, function: Function) -> None:
        arguments = []
        for argument, attrs in zip(function.args, function.arg_attrs, strict=True):
            text = self.typed(argument)
            arguments.append(f"{text} {_attributes(attrs)}" if attrs else text)
        head = f"func @{function.name}({', '.join(arguments)})"
        if function.attrs:
            head += f" {_attributes(function.attrs)}"
        self.lines.append(head + " {")
        self.region(function.body, "  ")
        self.lines.append("}")


def _attributes(attrs: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{name} = {_attribute(value)}" for name, value in attrs.items()) + "}"


def _attribute(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_attribute(item) for item in value) + "]"
    if isinstance(value, str):
        escaped = value.encode("unicode_escape").decode("ascii").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    return f'"{value}"'


def print_operation(op: Operation) -> str:
    """One operation with its regions."""
    printer = _Printer()
    printer.operation(op, "")
    return "\n".join(printer.lines) + "\n"


def print_function(function: Function) -> str:
    """One function."""
    printer = _Printer()
    printer.function(function)
    return "\n".join(printer.lines) + "\n"


def print_module(module: Module) -> str:
    """All functions, in order."""
    return "\n".join(print_function(function) for function in module)
