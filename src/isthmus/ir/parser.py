"""IR text back to IR: the inverse of `isthmus.ir.printer`.

    module    = function*
    function  = "func" @name "(" [%arg ":" type [attrs]],* ")" [attrs] "{" operation* "}"
    operation = [%result,* "="] name %operand,* [attrs] ":" types "->" types region*
    types     = "(" type,* ")"
    region    = "(" [%arg ":" type],* ")" "{" operation* "}"
    attrs     = "{" [name "=" value],* "}"
    value     = number | "text" | true | false | None | "[" value,* "]"
    type      = i1 i8 .. f64 | ptr<scalar> | tile<4x8xelement> | vector<8xelement>

A comment runs from // to the end of the line. The parser reads names and types; whether an
operation exists and fits is the verifier's question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from isthmus.core.errors import ParseError
from isthmus.ir.core import Function, Module, Operation, Region, Value
from isthmus.ir.types import SCALARS, PointerType, TileType, Type, VectorType

__all__ = ["parse_function", "parse_module", "parse_type"]

_TOKEN = re.compile(
    r"""
      (?P<skip>\s+|//[^\n]*)
    | (?P<value>%[A-Za-z0-9_]+)
    | (?P<symbol>@[^\s(]+)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<number>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?\b|(?:inf|nan)\b))
    | (?P<type>(?:tile|vector|ptr)<[0-9a-z]*(?:<[0-9a-z]*>)?>)
    | (?P<word>[A-Za-z_][\w.]*)
    | (?P<mark>->|[(){}\[\]:,=])
    """,
    re.VERBOSE,
)
_SHAPED = re.compile(r"(tile|vector)<((?:\d+x)+)(.+)>")
_WORDS = {"true": True, "false": False, "None": None}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int

    def __str__(self) -> str:
        return repr(self.text) if self.text else "the end of the text"


def parse_type(text: str) -> Type | None:
    """The type that prints as `text`; None where there is no such type."""
    if text in SCALARS:
        return SCALARS[text]
    if text.startswith("ptr<") and text.endswith(">"):
        pointee = SCALARS.get(text[4:-1])
        return None if pointee is None else PointerType(pointee)
    match = _SHAPED.fullmatch(text)
    element = parse_type(match[3]) if match else None
    if match is None or element is None or isinstance(element, (TileType, VectorType)):
        return None
    shape = tuple(int(extent) for extent in match[2].split("x")[:-1])
    return (TileType if match[1] == "tile" else VectorType)(shape, element)


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.position = 0
        self.values: dict[str, Value] = {}
        self.tokens = self.split()

    def split(self) -> list[_Token]:
        tokens, start = [], 0
        while start < len(self.text):
            match = _TOKEN.match(self.text, start)
            if match is None:
                raise self.error("this is no part of IR text", _Token("", self.text[start], start))
            if match.lastgroup != "skip":
                tokens.append(_Token(match.lastgroup or "", match[0], start))
            start = match.end()
        tokens.append(_Token("end", "", len(self.text.rstrip())))
        return tokens

    def error(self, message: str, token: _Token) -> ParseError:
        before = self.text[: token.start]
        return ParseError(
            message,
            name=self.name,
            text=self.text,
            line=before.count("\n") + 1,
            column=token.start - (before.rfind("\n") + 1) + 1,
            width=len(token.text),
        )

    # Tokens ----------------------------------------------------------------------------------

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    def peek(self, ahead: int) -> _Token:
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    def sees(self, text: str) -> bool:
        return self.next.text == text and self.next.kind != "string"

    def accept(self, text: str) -> bool:
        if not self.sees(text):
            return False
        self.position += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}, got {self.next}", self.next)

    def take(self, kind: str, what: str) -> _Token:
        token = self.next
        if token.kind != kind:
            raise self.error(f"expected {what}, got {token}", token)
        self.position += 1
        return token

    # Parts -----------------------------------------------------------------------------------

    def type(self) -> Type:
        token = self.next
        found = parse_type(token.text) if token.kind in ("type", "word") else None
        if found is None:
            raise self.error(f"expected a type, got {token}", token)
        self.position += 1
        return found

    def types(self) -> list[tuple[Type, _Token]]:
        self.expect("(")
        found = []
        while not self.accept(")"):
            if found:
                self.expect(",")
            token = self.next
            found.append((self.type(), token))
        return found

    def attributes(self) -> dict[str, Any]:
        self.expect("{")
        attrs: dict[str, Any] = {}
        while not self.accept("}"):
            if attrs:
                self.expect(",")
            token = self.take("word", "an attribute name")
            if token.text in attrs:
                raise self.error(f"attribute {token.text} is given twice", token)
            self.expect("=")
            attrs[token.text] = self.attribute()
        return attrs

    def attribute(self) -> Any:
        token = self.next
        if self.accept("["):
            items: list[Any] = []
            while not self.accept("]"):
                if items:
                    self.expect(",")
                items.append(self.attribute())
            return tuple(items)
        if token.kind == "string":
            self.position += 1
            return token.text[1:-1].encode("ascii", "backslashreplace").decode("unicode_escape")
        if token.kind == "number":
            self.position += 1
            is_whole = token.text.lstrip("-").isdigit()
            return int(token.text) if is_whole else float(token.text)
        if token.kind == "word" and token.text in _WORDS:
            self.position += 1
            return _WORDS[token.text]
        raise self.error(f"expected a number, a string, true, false, None or [, got {token}", token)

    def define(self, token: _Token, value: Value) -> None:
        name = token.text[1:]
        if name in self.values:
            raise self.error(f"%{name} is defined twice", token)
        value.hint = None if name.isdigit() else name
        self.values[name] = value

    def argument(self, region: Region) -> None:
        token = self.take("value", "an argument such as %x")
        self.expect(":")
        self.define(token, region.add_arg(self.type()))

    def value_names(self) -> list[_Token]:
        names: list[_Token] = []
        while self.next.kind == "value":
            names.append(self.take("value", "a value"))
            if not self.accept(","):
                break
            if self.next.kind != "value":
                raise self.error(f"expected a value such as %x, got {self.next}", self.next)
        return names

    # Operations ------------------------------------------------------------------------------

    def operation(self) -> Operation:
        results = self.value_names()
        if results:
            self.expect("=")
        name = self.take("word", "an operation name").text
        operand_names = self.value_names()
        attrs = self.attributes() if self.sees("{") else {}
        self.expect(":")
        end = self.next
        operand_types = self.types()
        operands = self.operands(operand_names, operand_types, end)
        self.expect("->")
        end = self.next
        result_types = self.types()
        if len(results) != len(result_types):
            raise self.error(f"{len(results)} results but {len(result_types)} result types", end)
        regions = []
        while self.sees("("):
            regions.append(self.region())
        op = Operation(name, operands, [type_ for type_, _ in result_types], attrs, regions)
        for token, value in zip(results, op.results, strict=True):
            self.define(token, value)
        return op

    def operands(
        self, names: list[_Token], types: list[tuple[Type, _Token]], end: _Token
    ) -> list[Value]:
        if len(names) != len(types):
            raise self.error(f"{len(names)} operands but {len(types)} operand types", end)
        operands = []
        for token, (type_, place) in zip(names, types, strict=True):
            value = self.values.get(token.text[1:])
            if value is None:
                raise self.error(f"{token.text} is not defined above", token)
            if value.type is not type_:
                raise self.error(f"{token.text} is {value.type}, not {type_}", place)
            operands.append(value)
        return operands

    def region(self) -> Region:
        region = Region()
        self.expect("(")
        while not self.accept(")"):
            if region.args:
                self.expect(",")
            self.argument(region)
        self.expect("{")
        while not self.accept("}"):
            region.append(self.operation())
        return region

    def function(self) -> Function:
        self.values = {}
        self.expect("func")
        function = Function(self.take("symbol", "a name such as @kernel").text[1:])
        self.expect("(")
        while not self.accept(")"):
            if function.args:
                self.expect(",")
            self.argument(function.body)
            function.arg_attrs.append(self.attributes() if self.sees("{") else {})
        if self.peek(1).kind == "word" and self.peek(2).text == "=":
            function.attrs = self.attributes()
        self.expect("{")
        while not self.accept("}"):
            function.body.append(self.operation())
        return function

    def module(self) -> Module:
        functions: dict[str, Function] = {}
        while self.next.kind != "end":
            token = self.peek(1)
            function = self.function()
            if function.name in functions:
                raise self.error(f"@{function.name} is defined twice", token)
            functions[function.name] = function
        return Module(functions.values())


def parse_module(text: str, name: str = "<ir>") -> Module:
    """All functions of `text`; `name` stands for it in messages.

    Raises: ParseError with line, column and a caret.
    """
    return _Parser(text, name).module()


def parse_function(text: str, name: str = "<ir>") -> Function:
    """The only function of `text`.

    Raises: ParseError with line, column and a caret.
    """
    parser = _Parser(text, name)
    function = parser.function()
    if parser.next.kind != "end":
        raise parser.error(f"expected the end of the text, got {parser.next}", parser.next)
    return function
