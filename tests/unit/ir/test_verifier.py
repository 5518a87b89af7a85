"""The verifier accepts what the builder makes and names what is wrong in anything else."""

from __future__ import annotations

import pytest
from tile_kernels import F32_POINTER, TileKernel

from isthmus.core.errors import InternalError
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Module, Operation, Region
from isthmus.ir.types import F32, I1, I32, I64, TileType
from isthmus.ir.verifier import verify
from isthmus.lowering.nest import lower
from isthmus.passes.pipeline import run
from isthmus.targets import host_target


def loop_kernel() -> Function:
    k = TileKernel("loop", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.arange(16)
    with k.loop(0, n, 1, k.full((16,), 0.0)) as loop:
        k.leave(loop.carried[0] + k.load(x + index + loop.index))
    k.store(out + index, k.reduce(loop.results[0]))
    return k.finish()


def find(function: Function, name: str) -> Operation:
    return next(op for op in function.walk() if op.name == name)


def refused(function: Function) -> InternalError:
    with pytest.raises(InternalError) as caught:
        verify(function)
    assert caught.value.ir is not None
    assert f"func @{function.name}(" in caught.value.ir
    return caught.value


def test_accepts_modules_and_lowered_functions():
    function = loop_kernel()
    verify(Module([function]))
    run(function)
    verify(lower(function, host_target()).function)


def change_name(function):
    find(function, "arith.addf").name = "arith.plus"


def drop_operand(function):
    find(function, "tile.load").set_operands([])


def drop_attribute(function):
    del find(function, "tile.arange").attrs["end"]


def add_attribute(function):
    find(function, "tile.arange").attrs["colour"] = 3


def change_attribute(function):
    find(function, "tile.arange").attrs["end"] = "16"


def change_result(function):
    find(function, "tile.arange").result.type = TileType((8,), I32)


def mix_types(function):
    op = find(function, "arith.addf")
    op.set_operand(1, find(function, "tile.arange").result)


def use_inner_value(function):
    find(function, "tile.reduce").set_operand(0, find(function, "arith.addf").result)


def use_later_value(function):
    load = find(function, "tile.load")
    region = load.parent
    assert region is not None
    region.ops.remove(load)
    region.ops.insert(region.ops.index(find(function, "arith.addf")) + 1, load)


def drop_return(function):
    function.body.ops[-1].erase()


def return_early(function):
    function.body.insert(0, function.body.ops.pop())


def drop_yield(function):
    find(function, "scf.yield").erase()


def yield_nothing(function):
    find(function, "scf.yield").set_operands([])


def change_carried(function):
    find(function, "scf.for").regions[0].args[1].type = F32


def forget_use(function):
    find(function, "tile.arange").result.uses.pop()


def invent_use(function):
    find(function, "tile.arange").result.uses.append((find(function, "scf.for"), 9))


def repeat_use(function):
    uses = find(function, "tile.arange").result.uses
    uses.append(uses[0])


def forget_parent(function):
    find(function, "tile.load").parent = None


def drop_region(function):
    find(function, "tile.reduce").regions = []


def integer_constant(function):
    ints = (op for op in function.walk() if op.name == "arith.constant" and op.result.type is I32)
    next(ints).attrs["value"] = 0.5


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (change_name, "@loop: arith.plus: no op table has this operation"),
        (drop_operand, "@loop: tile.load: expected 1 to 3 operands, got 0"),
        (drop_attribute, "tile.arange: attribute end is missing"),
        (add_attribute, "tile.arange: attribute colour is not in its table row"),
        (change_attribute, "tile.arange: attribute end must be int, got '16'"),
        (change_result, "expected results (tile<16xi32>), got (tile<8xi32>)"),
        (mix_types, "operands must have one type, got tile<16xf32>, tile<16xi32>"),
        (use_inner_value, "tile.reduce: operand 0 is not visible here"),
        (use_later_value, "arith.addf: operand 1 is not visible here"),
        (drop_return, "a region must end with func.return, it ends with tile.store"),
        (return_early, "func.return: it ends a region but other operations follow"),
        (drop_yield, "scf.for: a region must end with scf.yield, it ends with arith.addf"),
        (yield_nothing, "scf.for: yielded values: expected (tile<16xf32>), got ()"),
        (change_carried, "arith.addf: operands must have one type, got f32, tile<16xf32>"),
        (forget_use, "does not list this use"),
        (invent_use, "it lists a use as operand 9 of scf.for, which does not exist"),
        (repeat_use, "a use of one of its values is listed twice"),
        (forget_parent, "tile.load: its parent is not the region that holds it"),
        (drop_region, "tile.reduce: expected 1 regions, got 0"),
        (integer_constant, "a constant of i32 holds int, got 0.5"),
    ],
)
def test_damage_is_named(damage, message):
    function = loop_kernel()
    damage(function)
    assert message in str(refused(function))


def test_loop_arguments_and_branches_must_fit():
    function = Function("f", [I1, I32, I64], ["c", "n", "wide"])
    builder = Builder(function)
    condition, n, wide = function.args
    loop, body = builder.for_loop(n, n, n, [n])
    body.args[1].type = I64
    Builder(body).create("scf.yield", n)
    builder.create("func.return")
    assert "loop arguments: expected (i32, i32), got (i32, i64)" in str(refused(function))
    loop.erase()
    branch = Builder(function, 0).if_else(condition, [I32])
    for region, value in zip(branch.regions, (n, wide), strict=True):
        Builder(region).create("scf.yield", value)
    assert "scf.if: yielded values: expected (i32), got (i64)" in str(refused(function))


def test_while_forwards_what_it_gives():
    function = Function("f", [I32], ["n"])
    builder = Builder(function)
    (n,) = function.args
    before, body = Region([I32]), Region([I32])
    builder.create("scf.while", n, type=[I32], regions=[before, body])
    Builder(before).create("scf.condition", before.args[0], before.args[0])
    Builder(body).create("scf.yield", body.args[0])
    builder.create("func.return")
    assert "scf.while: the condition: expected (i1), got (i32)" in str(refused(function))


def test_a_failing_pass_is_named_with_the_ir_before_it():
    def break_types(function):
        change_result(function)

    with pytest.raises(InternalError) as caught:
        run(loop_kernel(), [break_types])
    assert caught.value.stage == "break_types"
    assert str(caught.value).startswith("pass break_types: @loop: tile.arange: expected results")
    before, after = str(caught.value.ir).split("after break_types:")
    assert "tile<16xi32>" in before.splitlines()[2]
    assert "-> (tile<8xi32>)" in after


def test_passes_are_not_checked_by_default(monkeypatch):
    monkeypatch.setenv("ISTHMUS_VERIFY", "0")
    run(loop_kernel(), [change_result])
