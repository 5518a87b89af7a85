"""IR text is read back as the same program; mistakes are shown with line, column and caret."""

from __future__ import annotations

import math

import pytest
from tile_kernels import F32_POINTER, TileKernel

from isthmus.core.errors import ParseError
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Region
from isthmus.ir.parser import parse_function, parse_module, parse_type
from isthmus.ir.printer import print_function, print_module
from isthmus.ir.types import BF16, F32, F64, I1, I32, PointerType, TileType, VectorType
from isthmus.ir.verifier import verify
from isthmus.lowering.nest import lower
from isthmus.targets import host_target


def round_trip(function: Function) -> Function:
    text = print_function(function)
    again = parse_function(text)
    assert print_function(again) == text
    verify(again)
    return again


def everything() -> Function:
    """Loops, branches, a while loop, a region reduction, argument facts."""
    k = TileKernel("all", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    k.function.arg_attrs[1] = {"divisibility": 16, "same_as": 0}
    k.function.attrs = {"warps": 4}
    index = k.arange(16)
    value = k.load(x + index, index < n, -math.inf)
    with k.loop(0, n, 1, value) as loop:
        k.leave(loop.carried[0] * 2.0)
    (total,) = k.combine(
        "tile.reduce", loop.results, 0,
        lambda b, values: [b.emit("arith.addf", *values)],
    )  # fmt: skip
    before, body = Region([I32], ["trips"]), Region([I32])
    builder = k.builder
    builder.create("scf.while", n.value, type=[I32], regions=[before, body])
    with builder.at(before):
        (trips,) = before.args
        going = builder.emit("arith.cmpi", trips, builder.i32(9), predicate="slt")
        builder.create("scf.condition", going, trips)
    with builder.at(body):
        builder.create("scf.yield", builder.emit("arith.addi", body.args[0], builder.i32(1)))
    branch = builder.if_else((n > 3).value, [F32])
    for region in branch.regions:
        Builder(region).create("scf.yield", total.value)
    k.store(out + index, value)
    builder.create("tile.print", total.value, prefix='a "b" \\ \n é: ')
    return k.finish()


def test_print_of_parse_of_print_is_print():
    again = round_trip(everything())
    assert again.arg_attrs[1] == {"divisibility": 16, "same_as": 0}
    assert again.attrs == {"warps": 4}
    (printed,) = (op for op in again.walk() if op.name == "tile.print")
    assert printed.attrs["prefix"] == 'a "b" \\ \n é: '


def test_lowered_functions_come_back_too():
    round_trip(lower(everything(), host_target()).function)


@pytest.mark.parametrize("value", [0.1, -0.0, 1e-45, 3.4028234663852886e38, math.inf, -math.inf])
def test_float_constants_keep_every_bit(value):
    function = Function("c")
    builder = Builder(function)
    builder.constant(value, F64)
    builder.create("func.return")
    constant = round_trip(function).body.ops[0].attrs["value"]
    assert math.copysign(1, constant) == math.copysign(1, value)
    assert constant == value


def test_modules_hold_several_functions_and_comments():
    text = print_function(everything())
    other = text.replace("@all", "@other")
    module = parse_module(f"// first\n{text}\n// second\n{other}")
    assert list(module.functions) == ["all", "other"]
    assert print_module(module) == f"{text}\n{other}"


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("i1", I1),
        ("ptr<bf16>", PointerType(BF16)),
        ("tile<4x8xf32>", TileType((4, 8), F32)),
        ("tile<2xptr<f32>>", TileType((2,), PointerType(F32))),
        ("vector<8xi32>", VectorType((8,), I32)),
        ("i7", None),
        ("tile<f32>", None),
        ("tile<4xtile<4xf32>>", None),
        ("ptr<ptr<f32>>", None),
    ],
)
def test_types(text, type_):
    assert parse_type(text) is type_


BODY = """func @f(%x: i32) {
  %y = arith.addi %x, %x : (i32, i32) -> (i32)
  func.return : () -> ()
}
"""


@pytest.mark.parametrize(
    ("old", "new", "message", "line", "column"),
    [
        ("%x, %x", "%x, %z", "%z is not defined above", 2, 23),
        ("(i32, i32)", "(i32, i64)", "%x is i32, not i64", 2, 34),
        ("(i32, i32)", "(i32)", "2 operands but 1 operand types", 2, 28),
        ("-> (i32)", "-> (i32, i32)", "1 results but 2 result types", 2, 42),
        ("%y =", "%x =", "%x is defined twice", 2, 3),
        ("%x, %x", "%x, 3", "expected a value such as %x, got '3'", 2, 23),
        ("(%x: i32)", "(%x: i33)", "expected a type, got 'i33'", 1, 13),
        ("(%x: i32)", "(%x: i32 i32)", "expected ',', got 'i32'", 1, 17),
        (" : (i32, i32)", " (i32, i32)", "expected ':', got '('", 2, 26),
        ("\n}\n", "\n", "expected an operation name, got the end of the text", 3, 25),
        ("func @f", "func f", "expected a name such as @kernel, got 'f'", 1, 6),
        ("%y", "$y", "this is no part of IR text", 2, 3),
        (" : () ->", " {a = 1, a = 2} : () ->", "attribute a is given twice", 3, 23),
        (" : () ->", " {a = b} : () ->", "expected a number, a string, true, false", 3, 20),
        ("\n}\n", "\n}\nrest", "expected the end of the text, got 'rest'", 5, 1),
    ],
)
def test_mistakes_are_shown(old, new, message, line, column):
    text = BODY.replace(old, new, 1)
    with pytest.raises(ParseError) as caught:
        parse_function(text, "broken.ir")
    error = caught.value
    assert message in error.message
    assert (error.line, error.column) == (line, column)
    first, source, caret = str(error).split("\n")
    assert first.startswith(f"broken.ir:{line}:{column}: ")
    assert source == f"  {text.splitlines()[line - 1]}"
    assert caret.index("^") == column + 1


def test_a_function_name_stands_once_in_a_module():
    with pytest.raises(ParseError, match="@f is defined twice"):
        parse_module(BODY + BODY)
