"""Block sizes and grids."""

from __future__ import annotations

import dataclasses

import pytest

from isthmus.core.dtypes import DTYPES
from isthmus.ops import operator
from isthmus.ops.matmul import matmul_blocks
from isthmus.ops.schedule import block_size, collapse, divide, fold_axis, rows_per_program
from isthmus.ops.standard import View
from isthmus.targets import host_target

F32 = DTYPES["f32"]


def target(cores: int = 2, any_block_size: bool = True):
    return dataclasses.replace(host_target(), cores=cores, any_block_size=any_block_size)


def test_blocks_are_exact_where_any_size_is_allowed():
    assert block_size(384, 4096, target()) == 384
    assert block_size(384, 4096, target(any_block_size=False)) == 512
    assert block_size(9000, 4096, target()) == 4096
    assert block_size(0, 4096, target()) == 1


def test_divide_makes_equal_parts():
    assert divide(1152, 512, 16) == 384
    assert divide(100, 512, 16) == 100
    assert divide(1025, 512, 16) == 352


def test_fold_axis():
    assert fold_axis((2, 3, 4, 5), 1) == (2, 3, 20)
    assert fold_axis((2, 3, 4, 5), -1) == (24, 5, 1)


def test_collapse_merges_what_walks_as_one():
    assert collapse((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ([24], [[1], [1]])
    assert collapse((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ([2, 12], [[12, 1], [0, 1]])
    assert collapse((2, 1, 4), [(4, 99, 1)]) == ([8], [[1]])
    assert collapse((1, 1), [(5, 7)]) == ([], [[]])


def test_rows_per_program_leaves_programs_for_every_core():
    assert rows_per_program(2048, 384) == 86
    assert rows_per_program(16, 4) == 2
    assert rows_per_program(1, 10**6) == 1


@pytest.mark.parametrize("cores", [1, 2, 8, 64])
@pytest.mark.parametrize("shape", [(2048, 1152, 384), (256, 384, 2048), (1, 384, 384), (7, 5, 3)])
def test_products_fill_the_cores(shape, cores):
    m, n, k = shape
    block_m, block_n, block_k = matmul_blocks(m, n, k, 1, target(cores))
    programs = -(-m // block_m) * -(-n // block_n)
    assert block_m <= m
    assert block_n <= n
    assert block_k <= k
    assert programs >= min(cores, m * n // 4096)
    assert block_k == matmul_blocks(m, n, k, 1, target(3))[2], "the order of sums moved"


def test_a_batch_that_shares_one_matrix_becomes_rows():
    a = View.contiguous((8, 256, 384), F32)
    b = View((384, 1152), F32, (1, 384))
    out = View.contiguous((8, 256, 1152), F32)
    (launch,) = operator("matmul").plan([a, b], [out], {}, target()).launches
    assert launch.args["M"] == 2048
    assert launch.grid[1] == 1


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("sum", [(2048, 384)], {"axes": (0,)}),
        ("sum", [(10**6,)], {}),
        ("layer_norm_backward", [(2048, 384), (2048, 384), (2048,), (2048,), (384,)], {}),
        ("global_norm", [(1000, 1000), (7,)], {}),
    ],
)
def test_partial_sums_come_from_shapes_alone(name, shapes, attrs):
    views = [View.contiguous(shape, F32) for shape in shapes]
    op = operator(name)
    outs = [
        View.contiguous(out.shape, out.dtype) for out in op.infer([v.spec for v in views], attrs)
    ]
    one, many = (op.plan(views, outs, attrs, target(cores)) for cores in (1, 64))
    assert [launch.grid for launch in one.launches] == [launch.grid for launch in many.launches]
    assert one.workspaces == many.workspaces
