"""Random tile IR: straight-line code, loops and branches over i32, f32 and i1, always in bounds.

    program = draw(programs())        # a Program: text, arguments
    function = parse_function(program.text)

Values are scalars or blocks of LANES. Every operation is exact or rounded in one defined way,
and sums of floats are sums of small whole numbers, so that any right implementation agrees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Region, Value
from isthmus.ir.printer import print_function
from isthmus.ir.types import F32, I1, I32, PointerType, ScalarType, TileType, Type, with_element

__all__ = ["LANES", "Program", "programs"]

LANES = 16
_WORDS = 64
_INTEGER = (
    "addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "andi", "ori", "xori", "shli",
    "shrsi", "shrui", "minsi", "maxsi", "minui", "maxui", "mulhui",
)  # fmt: skip
_FLOAT = ("addf", "subf", "mulf", "minimumf", "maximumf", "minnumf", "maxnumf")
_FUNCTIONS = ("arith.negf", "math.absf", "math.floor", "math.ceil", "math.trunc", "math.sqrt",
              "math.roundeven")  # fmt: skip
_REDUCE = {
    I32: ("addi", "muli", "maxsi", "minui", "andi", "ori", "xori"),
    F32: ("maxnumf", "minnumf", "maximumf", "minimumf"),
}
_STEPS = (
    "constant", "integer", "integer", "floating", "function", "compare", "compare", "choose",
    "convert", "fill", "load", "load", "store", "reduce", "total", "scan", "loop", "branch",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """IR text and the arguments to run it with: arrays to be copied, numbers."""

    text: str
    words: np.ndarray
    floats: np.ndarray
    count: int

    def arguments(self) -> list[np.ndarray | int]:
        """Fresh arguments: words, floats, two outputs, the count."""
        outputs = [np.full(_WORDS, 7, np.int32), np.full(_WORDS, 7, np.float32)]
        return [self.words.copy(), self.floats.copy(), *outputs, self.count]


class _Maker:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        types = [PointerType(I32), PointerType(F32), PointerType(I32), PointerType(F32), I32]
        self.function = Function("random", types, ["words", "floats", "out_i", "out_f", "n"])
        self.builder = Builder(self.function)
        self.words, self.floats, self.out_i, self.out_f, self.count = self.function.args
        self.lanes = self.emit("tile.arange", start=0, end=LANES)
        self.scopes: list[list[Value]] = [[self.count, self.lanes]]
        self.depth = 0

    def emit(self, name: str, *operands: Value, **keywords: object) -> Value:
        return self.builder.emit(name, *operands, **keywords)

    # Choosing --------------------------------------------------------------------------------

    def among(self, *choices):
        return self.draw(st.sampled_from(choices))

    def keep(self, value: Value) -> None:
        self.scopes[-1].append(value)

    def pick(self, type_: Type) -> Value:
        found = [value for scope in self.scopes for value in scope if value.type is type_]
        if found and self.draw(st.integers(0, 9)) > 0:
            return found[self.draw(st.integers(0, len(found) - 1))]
        return self.literal(type_)

    def literal(self, type_: Type) -> Value:
        element = getattr(type_, "element", type_)
        if element is I1:
            number = self.draw(st.integers(0, 1))
        elif element is I32:
            number = self.among(0, 1, -1, 2, 3, 7, 31, 32, 1000, -(1 << 31), (1 << 31) - 1)
        else:
            number = self.among(0.0, -0.0, 1.0, -2.5, 0.1, float("inf"), float("nan"), 1e30)
        return self.builder.constant(number, type_)

    def shaped(self, element: ScalarType) -> Type:
        return self.among(element, TileType((LANES,), element))

    # Steps -----------------------------------------------------------------------------------

    def constant(self) -> None:
        self.keep(self.literal(self.shaped(self.among(I1, I32, F32))))

    def integer(self) -> None:
        type_ = self.shaped(I32)
        name = f"arith.{self.among(*_INTEGER)}"
        self.keep(self.emit(name, self.pick(type_), self.pick(type_)))

    def floating(self) -> None:
        type_ = self.shaped(F32)
        name = f"arith.{self.among(*_FLOAT)}"
        self.keep(self.emit(name, self.pick(type_), self.pick(type_)))

    def function_of_one(self) -> None:
        self.keep(self.emit(self.among(*_FUNCTIONS), self.pick(self.shaped(F32))))

    def compare(self) -> None:
        element = self.among(I32, F32)
        type_ = self.shaped(element)
        name, predicates = (
            ("cmpi", ("eq", "ne", "slt", "sge", "ult", "uge"))
            if element is I32
            else ("cmpf", ("oeq", "one", "olt", "oge", "ueq", "une", "ult", "uge", "ord", "uno"))
        )
        predicate = self.among(*predicates)
        pair = self.pick(type_), self.pick(type_)
        self.keep(self.emit(f"arith.{name}", *pair, predicate=predicate))

    def choose(self) -> None:
        type_ = self.shaped(self.among(I32, F32))
        condition = self.pick(with_element(type_, I1))
        self.keep(self.emit("arith.select", condition, self.pick(type_), self.pick(type_)))

    def convert(self) -> None:
        name, source, target = self.among(
            ("sitofp", I32, F32), ("uitofp", I32, F32), ("fptosi", F32, I32), ("fptoui", F32, I32),
            ("extui", I1, I32), ("extsi", I1, I32), ("trunci", I32, I1),
        )  # fmt: skip
        value = self.pick(self.shaped(source))
        self.keep(self.emit(f"arith.{name}", value, type=with_element(value.type, target)))

    def fill(self) -> None:
        scalar = self.pick(self.among(I32, F32, I1))
        self.keep(self.builder.splat(scalar, TileType((LANES,), I32)))

    def address(self, base: Value, index: Value) -> Value:
        pointers = self.emit("tile.splat", base, type=TileType((LANES,), base.type))
        return self.emit("ptr.add", pointers, index)

    def load(self) -> None:
        block, flags = TileType((LANES,), I32), TileType((LANES,), I1)
        base = self.among(self.words, self.floats, self.out_i)
        index = self.lanes
        if self.draw(st.booleans()):
            limit = self.builder.constant(_WORDS - 1, block)
            index = self.emit("arith.andi", self.pick(block), limit)
        pointer = self.address(base, index)
        operands = [pointer]
        if self.draw(st.booleans()):
            operands.append(self.pick(flags))
            if self.draw(st.booleans()):
                element = F32 if base is self.floats else I32
                operands.append(self.pick(TileType((LANES,), element)))
        self.keep(self.emit("tile.load", *operands))

    def store(self) -> None:
        base, element = self.among((self.out_i, I32), (self.out_f, F32))
        shift = self.builder.constant(LANES * self.draw(st.integers(0, 2)), self.lanes.type)
        pointer = self.address(base, self.emit("arith.addi", self.lanes, shift))
        operands = [pointer, self.pick(TileType((LANES,), element))]
        if self.draw(st.booleans()):
            operands.append(self.pick(TileType((LANES,), I1)))
        self.builder.create("tile.store", *operands)

    def reduce(self) -> None:
        element = self.among(I32, F32)
        value, kind = self.pick(TileType((LANES,), element)), self.among(*_REDUCE[element])
        self.keep(self.emit("tile.reduce", value, axis=0, kind=kind, regions=[Region()]))

    def total(self) -> None:
        block = TileType((LANES,), I32)
        small = self.emit("arith.andi", self.pick(block), self.builder.constant(255, block))
        value = self.emit("arith.sitofp", small, type=TileType((LANES,), F32))
        self.keep(self.emit("tile.reduce", value, axis=0, kind="addf", regions=[Region()]))

    def scan(self) -> None:
        value, kind = self.pick(TileType((LANES,), I32)), self.among(*_REDUCE[I32])
        self.keep(self.emit("tile.scan", value, axis=0, kind=kind,
                            reverse=self.draw(st.booleans()), regions=[Region()]))  # fmt: skip

    def loop(self) -> None:
        i32 = self.builder.i32
        upper = self.count if self.draw(st.booleans()) else i32(self.draw(st.integers(0, 4)))
        lower, step = i32(self.draw(st.integers(-1, 1))), i32(self.draw(st.integers(1, 3)))
        types = [self.shaped(self.among(I32, F32, I1)) for _ in range(self.draw(st.integers(0, 2)))]
        op, body = self.builder.for_loop(lower, upper, step, [self.pick(type_) for type_ in types])
        self.inside(body, types)
        self.scopes[-1] += op.results

    def branch(self) -> None:
        types = [self.shaped(self.among(I32, F32)) for _ in range(self.draw(st.integers(0, 2)))]
        op = self.builder.if_else(self.pick(I1), types)
        for region in op.regions:
            self.inside(region, types)
        self.scopes[-1] += op.results

    def inside(self, region: Region, types: list[Type]) -> None:
        self.depth += 1
        self.scopes.append(list(region.args))
        with self.builder.at(region):
            self.steps(self.draw(st.integers(0, 4)))
            self.builder.create("scf.yield", *(self.pick(type_) for type_ in types))
        self.scopes.pop()
        self.depth -= 1

    def steps(self, count: int) -> None:
        for _ in range(count):
            step = self.among(*_STEPS)
            if step == "function":
                step = "function_of_one"
            if self.depth < 2 or step not in ("loop", "branch"):
                getattr(self, step)()

    def program(self) -> Program:
        self.steps(self.draw(st.integers(3, 14)))
        self.store()
        self.store()
        self.builder.create("func.return")
        rng = np.random.default_rng(self.draw(st.integers(0, 999)))
        words = rng.choice(
            np.array([0, 1, -1, 5, 40, 1 << 20, -(1 << 31), (1 << 31) - 1], np.int32), _WORDS
        )
        special = np.array([0.0, -0.0, 1.5, -2.5, 7.0, 3e38, np.inf, np.nan, 1e-40], np.float32)
        return Program(
            print_function(self.function), words, rng.choice(special, _WORDS),
            self.draw(st.integers(0, 4)),
        )  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A random program and its arguments."""
    return _Maker(draw).program()
