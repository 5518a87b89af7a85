"""`@isthmus.jit`: a Python function as a kernel, specialised and launched on the host CPU."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter as PythonParameter
from typing import Any

import numpy as np

from isthmus.core.errors import DeviceError, KernelError
from isthmus.core.target import TargetDescription
from isthmus.hal.drivers.cpu.device import CpuDevice, CpuExecutable
from isthmus.hal.drivers.cpu.runtime import COMMAND
from isthmus.hal.registry import open_device
from isthmus.jit.arguments import classify, memory_range, slot_value
from isthmus.jit.compile import CompiledKernel, Specialisation, compile_kernel
from isthmus.language.source import KernelSource, source_of
from isthmus.language.values import unwrap
from isthmus.targets import host_target

__all__ = ["JitFunction", "cdiv", "default_device", "jit", "next_power_of_2"]

#: Launch options that are hints for other hardware: accepted, without effect here.
_HINTS = frozenset(
    {"num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim",
     "grf_mode", "enable_fp_fusion", "kpack", "extern_libs", "warp_size", "launch_cooperative_grid",
     "launch_pdl", "num_buffers_warp_spec", "num_consumer_groups", "reg_dec_producer",
     "reg_inc_consumer", "ir_override", "debug", "sanitize_overflow", "allow_fp8e4nv"}
)  # fmt: skip


def cdiv(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two not below `n`, 1 for n <= 1."""
    return 1 << max(0, n - 1).bit_length()


@lru_cache(maxsize=1)
def default_device() -> CpuDevice:
    """The device that kernels run on when launched from Python: the host CPU."""
    return open_device("cpu", host_target())


class _Loaded:
    """A specialisation ready to launch."""

    __slots__ = ("address", "compiled", "executable", "kinds", "positions", "scratch_bytes")

    def __init__(self, compiled: CompiledKernel, names: Sequence[str]) -> None:
        self.compiled = compiled
        self.executable: CpuExecutable = default_device().load([compiled.code], [compiled.entry])
        self.address = self.executable.addresses[compiled.entry.name]
        self.kinds = compiled.entry.parameters
        self.scratch_bytes = compiled.entry.scratch_bytes
        order = {name: position for position, name in enumerate(names)}
        kept = [name for name in names if name in compiled.specialisation.signature]
        self.positions = [order[name] for name in kept]


class _Frame(threading.local):
    """Per-thread memory for one command and its argument slots."""

    def __init__(self) -> None:
        self.slots = np.zeros(64, np.uint64)
        self.command = np.zeros(1, COMMAND)
        self.command["args"] = self.slots.ctypes.data
        self.address = self.command.ctypes.data
        self.grid = self.command["grid"][0]


_frame = _Frame()


class JitFunction:
    """A kernel. `kernel[grid](*args, **meta)` launches it; `source` is its source."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        do_not_specialize: Sequence[str | int] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.source = KernelSource(fn)
        self.options = dict(options or {})
        self.arg_names = self.source.parameter_names
        self.do_not_specialize = frozenset(
            self.arg_names[entry] if isinstance(entry, int) else entry
            for entry in do_not_specialize
        )
        self._parameters = self.source.parameters
        self._defaults = {
            parameter.name: parameter.default
            for parameter in self._parameters
            if parameter.default is not PythonParameter.empty
        }
        self._is_constexpr = [parameter.is_constexpr for parameter in self._parameters]
        self._loaded: dict[Any, _Loaded] = {}
        self._watched: list[tuple[dict[str, Any], str, Any]] | None = None
        self._classes_seen = 0

    def __repr__(self) -> str:
        return f"<kernel {self.source.name}>"

    def __call__(self, *_arguments: Any, **_keywords: Any) -> Any:
        raise KernelError(
            f"kernel {self.source.name} was called like a function",
            hint=f"launch it over a grid: {self.source.name}[grid](...)",
            code="K120",
        )

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        return functools.partial(self.run, grid=grid)

    # Ahead of time

    def specialisation(
        self,
        signature: Mapping[str, str],
        constexprs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Specialisation:
        """What decides the code of this kernel for given types and constants."""
        return Specialisation(
            self.source, dict(signature), dict(constexprs or {}), dict(attrs or {}),
            {**self.options, **(options or {})},
        )  # fmt: skip

    def compile(
        self,
        signature: Mapping[str, str],
        constexprs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        target: TargetDescription | None = None,
    ) -> CompiledKernel:
        """Compile for given argument types without launching."""
        return compile_kernel(
            self.specialisation(signature, constexprs, attrs, options),
            target or default_device().target,
        )

    # Launching

    def _bind(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> list[Any]:
        names = self.arg_names
        if len(arguments) == len(names) and not keywords:
            return list(arguments)
        if len(arguments) > len(names):
            raise DeviceError(
                f"kernel {self.source.name} takes {len(names)} arguments, got {len(arguments)}"
            )
        values = list(arguments)
        for name in names[len(arguments) :]:
            if name in keywords:
                values.append(keywords.pop(name))
            elif name in self._defaults:
                values.append(self._defaults[name])
            else:
                raise DeviceError(
                    f"kernel {self.source.name} needs argument {name!r}",
                    hint=f"its arguments are {', '.join(names)}",
                )
        for name in keywords:
            if name not in _HINTS:
                twice = name in names
                raise DeviceError(
                    f"kernel {self.source.name} got {name!r} twice" if twice
                    else f"kernel {self.source.name} has no argument {name!r}",
                    hint=f"its arguments are {', '.join(names)}",
                )  # fmt: skip
        return values

    def run(self, *arguments: Any, grid: Any, **keywords: Any) -> CompiledKernel:
        """Launch over `grid`: a tuple of one to three numbers, or a function of the arguments."""
        values = self._bind(arguments, keywords)
        if self._watched is None or any(
            scope.get(name) is not value for scope, name, value in self._watched
        ):
            self._refresh()
        key, ranges = self._classify(values)
        loaded = self._loaded.get(key)
        if loaded is None:
            loaded = self._load(key, values)
        if callable(grid):
            grid = grid(dict(zip(self.arg_names, values, strict=True)))
        self._launch(loaded, values, ranges, _grid(grid))
        return loaded.compiled

    def warmup(self, *arguments: Any, grid: Any = (1,), **keywords: Any) -> CompiledKernel:
        """Compile what a launch with these arguments would run, without running it."""
        values = self._bind(arguments, keywords)
        key, _ = self._classify(values)
        loaded = self._loaded.get(key) or self._load(key, values)
        return loaded.compiled

    def _classify(self, values: list[Any]) -> tuple[Any, list[tuple[int, int]]]:
        """The class of all arguments together, and the address ranges of the arrays."""
        classes: list[Any] = []
        ranges: list[tuple[int, int]] = []
        for name, value, is_constexpr in zip(
            self.arg_names, values, self._is_constexpr, strict=True
        ):
            if is_constexpr:
                value = unwrap(value)  # noqa: PLW2901
                classes.append((type(value), tuple(value) if isinstance(value, list) else value))
                continue
            if source_of(value) is not None or isinstance(value, str):
                classes.append(("constant", value))
                continue
            entry = classify(value, name not in self.do_not_specialize)
            classes.append(entry)
            if entry[0][0] == "*":
                ranges.append(memory_range(value))
        disjoint = True
        for position, (low, high) in enumerate(ranges):
            for other_low, other_high in ranges[:position]:
                if low != other_low and low < other_high and other_low < high:
                    disjoint = False
        starts = [low for low, _ in ranges]
        shared = tuple(map(starts.index, starts)) if len(set(starts)) < len(starts) else ()
        classes.append((disjoint, shared))
        return tuple(classes), ranges

    def _load(self, key: tuple[Any, ...], values: list[Any]) -> _Loaded:
        signature: dict[str, str] = {}
        constexprs: dict[str, Any] = {}
        attrs: dict[str, dict[str, Any]] = {}
        *classes, (disjoint, shared) = key
        pointers: list[int] = []
        for name, value, kind, is_constexpr in zip(
            self.arg_names, values, classes, self._is_constexpr, strict=True
        ):
            if is_constexpr or kind[0] == "constant":
                constexprs[name] = unwrap(value)
            elif kind[0] == "=1":
                constexprs[name] = 1
            elif kind[0] == "none":
                constexprs[name] = None
            else:
                signature[name] = kind[0]
                facts: dict[str, Any] = {}
                if len(kind) > 1 and kind[1]:
                    facts["divisibility"] = 16
                if kind[0][0] == "*" and disjoint:
                    facts["noalias"] = True
                if kind[0][0] == "*":
                    pointers.append(len(signature) - 1)
                    if shared and shared[len(pointers) - 1] != len(pointers) - 1:
                        facts["same_as"] = pointers[shared[len(pointers) - 1]]
                if facts:
                    attrs[name] = facts
        self._classes_seen += 1
        reason = "first use" if self._classes_seen == 1 else "arguments of another class"
        compiled = compile_kernel(
            self.specialisation(signature, constexprs, attrs), default_device().target,
            reason=reason,
        )  # fmt: skip
        loaded = _Loaded(compiled, self.arg_names)
        self._loaded[key] = loaded
        return loaded

    def _launch(
        self, loaded: _Loaded, values: list[Any], ranges: list[tuple[int, int]],
        grid: tuple[int, int, int],
    ) -> None:  # fmt: skip
        total = grid[0] * grid[1] * grid[2]
        if total == 0:
            return
        frame = _frame
        slots = frame.slots
        if len(loaded.kinds) > len(slots):
            frame.slots = slots = np.zeros(2 * len(loaded.kinds), np.uint64)
            frame.command["args"] = slots.ctypes.data
        packed = []
        for kind, position in zip(loaded.kinds, loaded.positions, strict=True):
            value = values[position]
            if kind == "ptr":
                packed.append(
                    value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
                )
            else:
                packed.append(slot_value(kind, value))
        slots[: len(packed)] = packed
        device = default_device()
        chunk = max(1, total // (6 * device.threads.count))
        frame.command[0] = (loaded.address, slots.ctypes.data, grid, 0, total, chunk)
        device.run(frame.address, 1, loaded.scratch_bytes)

    def _refresh(self) -> None:
        """Forget compiled code when a helper or a global that the source reads has changed."""
        watched: list[tuple[dict[str, Any], str, Any]] = []
        seen: set[int] = set()

        def visit(source: KernelSource) -> None:
            if id(source) in seen:
                return
            seen.add(id(source))
            scope = source.fn.__globals__
            for dotted, value in source.dependencies().items():
                first, *rest = dotted.split(".")
                holder = scope
                for part in rest:
                    holder, first = vars(holder[first]), part
                if first in holder:
                    watched.append((holder, first, value))
                inner = source_of(value)
                if inner is not None:
                    visit(inner)

        visit(self.source)
        if self._watched is not None:
            self._loaded.clear()
        self._watched = watched


def _grid(grid: Any) -> tuple[int, int, int]:
    """One to three numbers of programs. Raises DeviceError for anything else."""
    numbers = (grid,) if isinstance(grid, int) else tuple(grid)
    if not 1 <= len(numbers) <= 3:
        raise DeviceError(f"a grid has one to three numbers, got {numbers}")
    for number in numbers:
        if not isinstance(number, (int, np.integer)) or number < 0:
            raise DeviceError(f"a grid is made of whole numbers of 0 or more, got {numbers}")
    return (*(int(number) for number in numbers), 1, 1)[:3]  # type: ignore[return-value]


def jit(fn: Callable[..., Any] | None = None, **settings: Any) -> Any:
    """Make a kernel of a Python function: `@jit`, or `@jit(do_not_specialize=["n"])`.

    do_not_specialize: integer parameters (names or positions) whose value 1 and divisibility by
        16 make no difference to the code.
    Other settings of Triton's decorator (noinline, repr, debug, ...) are accepted.
    """
    known = {name: settings[name] for name in ("do_not_specialize", "options") if name in settings}
    if fn is None:
        return lambda function: JitFunction(function, **known)
    return JitFunction(fn, **known)
