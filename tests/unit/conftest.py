"""Fixtures shared by the tests of generated code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import numpy as np
import pytest

from isthmus.core.target import TargetDescription
from isthmus.ir.core import Function
from isthmus.targets import host_target, target_named
from isthmus.targets.llvm.compile import compile_object
from isthmus.targets.llvm.emit import emit_module

HOST_FEATURES = llvm.get_host_cpu_features()
#: Levels that this machine can run, besides what it is itself.
LEVELS = [
    level
    for level, feature in (("sse42", "avx2"), ("avx2", "avx512bw"))
    if HOST_FEATURES.get(feature)
]


class NativeCode:
    """Loads nest functions of the kernel ABI into this process and calls them."""

    def __init__(self, functions: Sequence[Function], target: TargetDescription) -> None:
        code = compile_object(emit_module(functions, target), target)
        machine = llvm.Target.from_triple(target.triple).create_target_machine(jit=True)
        empty = llvm.parse_assembly(f'target triple = "{target.triple}"')
        self._engine = llvm.create_mcjit_compiler(empty, machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def __call__(
        self,
        name: str,
        arguments: Sequence[np.ndarray | int | float],
        grid: tuple[int, int, int] = (1, 1, 1),
        scratch_bytes: int = 0,
        span: tuple[int, int] | None = None,
    ) -> None:
        kind = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        )
        slots = np.zeros(max(1, len(arguments)), np.int64)
        for position, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                slots[position] = argument.ctypes.data
            elif isinstance(argument, float):
                slots[position] = int(np.float32(argument).view(np.uint32))
            else:
                slots[position] = argument
        sizes = np.array(grid, np.int32)
        scratch = np.zeros(scratch_bytes + 128, np.uint8)
        aligned = (scratch.ctypes.data + 63) // 64 * 64
        first, last = span or (0, int(np.prod(grid)))
        kind(self._engine.get_function_address(name))(
            slots.ctypes.data, sizes.ctypes.data, first, last, aligned
        )


@pytest.fixture(scope="session")
def native() -> Callable[..., NativeCode]:
    """`native(functions, target)`: code in this process, called by kernel name."""

    def load(
        functions: Function | Sequence[Function], target: TargetDescription | None = None
    ) -> NativeCode:
        listed = [functions] if isinstance(functions, Function) else functions
        return NativeCode(listed, target or host_target())

    return load


@pytest.fixture(params=["host", *LEVELS])
def target(request: pytest.FixtureRequest) -> TargetDescription:
    """This machine, and every lower feature level."""
    return (
        target_named("host")
        if request.param == "host"
        else target_named("x86_64", level=request.param)
    )
