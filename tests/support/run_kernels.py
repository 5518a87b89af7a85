"""Lower a tile function, compile it, and run it in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llvmlite.binding as llvm
import numpy as np

from isthmus.core.target import TargetDescription
from isthmus.ir.core import Function
from isthmus.ir.types import F32, F64
from isthmus.lowering.nest import LoweredKernel, lower
from isthmus.targets import host_target
from isthmus.targets.llvm.compile import compile_object
from isthmus.targets.llvm.emit import emit_module

__all__ = ["Kernel", "run"]

_GUARD_BYTES = 256


class Kernel:
    """A compiled tile function; calling it runs a whole grid in one thread."""

    def __init__(self, function: Function, target: TargetDescription | None = None) -> None:
        target = target or host_target()
        self.text = self.compile(function, target)
        code = compile_object(self.text, target)
        machine = llvm.Target.from_triple(target.triple).create_target_machine(jit=True)
        empty = llvm.parse_assembly(f'target triple = "{target.triple}"')
        self._engine = llvm.create_mcjit_compiler(empty, machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def compile(self, function: Function, target: TargetDescription) -> str:
        """LLVM IR for `function`, which is not loaded."""
        self.function = function
        self.lowered: LoweredKernel = lower(function, target)
        return emit_module([self.lowered.function], target)

    def __call__(
        self, *arguments: np.ndarray | float, grid: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        slots = np.zeros(max(1, len(arguments)), np.int64)
        for position, argument in enumerate(arguments):
            type_ = self.function.args[position].type
            if isinstance(argument, np.ndarray):
                slots[position] = argument.ctypes.data
            elif type_ is F32:
                slots[position : position + 1].view(np.float32)[0] = argument
            elif type_ is F64:
                slots[position : position + 1].view(np.float64)[0] = argument
            else:
                slots[position] = int(argument)
        sizes = np.array(grid, np.int32)
        # Scratch starts as NaN-like rubbish, and what lies behind it must stay as it was.
        size = self.lowered.scratch_bytes
        scratch = np.full(size + 64 + _GUARD_BYTES, 0xFE, np.uint8)
        start = -scratch.ctypes.data % 64
        kind = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        )
        kind(self._engine.get_function_address(self.function.name))(
            slots.ctypes.data,
            sizes.ctypes.data,
            0,
            int(np.prod(grid)),
            scratch.ctypes.data + start,
        )
        assert (scratch[start + size :] == 0xFE).all(), "the kernel wrote behind its scratch"


def run(
    function: Function,
    *arguments: np.ndarray | float,
    grid: Sequence[int] = (1, 1, 1),
    target: TargetDescription | None = None,
) -> Kernel:
    """Compile and run once; arrays are changed in place."""
    kernel = Kernel(function, target)
    kernel(*arguments, grid=(grid[0], grid[1], grid[2]))
    return kernel
