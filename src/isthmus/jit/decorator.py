"""`@isthmus.jit`: a Python function as a kernel, specialised and launched on the host CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter as PythonParameter
from typing import Any

import numpy as np

from isthmus.core.errors import DeviceError, KernelError
from isthmus.core.target import TargetDescription
from isthmus.hal.drivers.cpu.device import CpuDevice
from isthmus.hal.registry import open_device
from isthmus.jit.compile import CompiledKernel, Specialisation, compile_kernel
from isthmus.jit.launch import LoadedKernel, bind, grid_sizes
from isthmus.jit.specialise import (
    CONSTANT,
    FIXED,
    SPECIALISED,
    Arguments,
    Layout,
    specialise,
)
from isthmus.language.source import KernelSource
from isthmus.language.values import unwrap
from isthmus.lowering.nest import written_arguments
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


#: Launches with the same types but other facts (sizes of 1, alignment, overlap) get code of their
#: own up to this many times; then one version that relies on no facts serves all others.
_VERSIONS = 4


class _Watch:
    """Globals and closure variables that a kernel and its helpers read, with their values.

    renewed: whether this watch replaces one whose values have changed.
    """

    def __init__(self, source: KernelSource, renewed: bool) -> None:
        self.renewed = renewed
        self._names: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        self._cells: list[tuple[Any, Any]] = []
        self._seen: set[int] = set()
        self._visit(source)
        self._watched = list(self._names.values())

    def _visit(self, source: KernelSource) -> None:
        if id(source) in self._seen:
            return
        self._seen.add(id(source))
        free = source.fn.__code__.co_freevars
        for dotted, value in source.dependencies().items():
            first, *rest = dotted.split(".")
            if first in free:
                cell = (source.fn.__closure__ or ())[free.index(first)]
                self._cells.append((cell, cell.cell_contents))
            else:
                self._add(source.fn.__globals__, first)
            holder = source.lookup(first)
            for part in rest:
                if not holder.__name__.startswith("isthmus.language"):
                    self._add(vars(holder), part)
                holder = getattr(holder, part)
            if isinstance(value, JitFunction):
                self._visit(value.source)

    def _add(self, scope: dict[str, Any], name: str) -> None:
        self._names[id(scope), name] = (scope, name, scope.get(name))

    def has_changed(self) -> bool:
        for scope, name, value in self._watched:
            if scope.get(name) is not value:
                return True
        return bool(self._cells) and any(cell.cell_contents is not v for cell, v in self._cells)


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
        self._modes = tuple(
            CONSTANT if parameter.is_constexpr
            else FIXED if parameter.name in self.do_not_specialize
            else SPECIALISED
            for parameter in self._parameters
        )  # fmt: skip
        self._loaded: dict[Any, LoadedKernel] = {}
        self._versions: dict[Any, list[Arguments]] = {}
        self._latest: Arguments | None = None
        self._watch: _Watch | None = None

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

    def _bind(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> Sequence[Any]:
        """A value for each parameter, in order."""
        names = self.arg_names
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
        values: Sequence[Any] = arguments
        if keywords or len(arguments) != len(self.arg_names):
            values = self._bind(arguments, keywords)
        loaded, slots = self._find(values)
        if callable(grid):
            grid = grid({name: unwrap(v) for name, v in zip(self.arg_names, values, strict=True)})
        loaded.launch(slots, grid_sizes(grid))
        return loaded.compiled

    def warmup(self, *arguments: Any, grid: Any = (1,), **keywords: Any) -> CompiledKernel:
        """Compile what a launch with these arguments would run, without running it."""
        return self._find(self._bind(arguments, keywords))[0].compiled

    def _find(self, values: Sequence[Any]) -> tuple[LoadedKernel, list[int | float]]:
        """The code for these arguments, compiled if need be, and the arguments' slots."""
        if self._watch is None or self._watch.has_changed():
            self._forget()
        entries, slots, layout = bind(values, self._modes)
        key = tuple(entries)
        loaded = self._loaded.get(key)
        if loaded is None:
            loaded = self._loaded[key] = self._load(values, layout, len(slots))
        return loaded, slots

    def _load(self, values: Sequence[Any], layout: Layout, given: int) -> LoadedKernel:
        device = default_device()
        arguments = specialise(self.arg_names, self._modes, values, layout)
        generic = specialise(self.arg_names, self._modes, values, layout, generic=True)
        versions = self._versions.setdefault(generic.types(), [])
        if len(versions) >= _VERSIONS and arguments not in versions:
            arguments = generic
        if arguments not in versions:
            versions.append(arguments)
        reason = self._reason(arguments)
        self._latest = arguments
        compiled = compile_kernel(
            self.specialisation(arguments.signature, arguments.constexprs, arguments.attrs),
            device.target, reason=reason,
        )  # fmt: skip
        self._require_writeable(values, compiled)
        return LoadedKernel(compiled, device, arguments.positions, given)

    def _require_writeable(self, values: Sequence[Any], compiled: CompiledKernel) -> None:
        """Raise DeviceError when the code writes to an array that is read-only."""
        read_only = {
            name
            for name, value in zip(self.arg_names, values, strict=True)
            if isinstance(value, np.ndarray) and not value.flags.writeable
        }
        if not read_only:
            return
        names = list(compiled.specialisation.signature)
        for number in sorted(written_arguments(compiled.stages().tile)):
            if names[number] in read_only:
                raise DeviceError(
                    f"kernel {self.source.name} writes to {names[number]!r}, which is a read-only "
                    "array",
                    hint="pass a copy: array.copy()",
                )

    def _reason(self, arguments: Arguments) -> str:
        """Why another version of this kernel is needed."""
        if self._latest is not None:
            return ", ".join(arguments.differences(self._latest)) or "other arguments"
        if self._watch is not None and self._watch.renewed:
            return "a helper or global has changed"
        return "first use"

    def _forget(self) -> None:
        """Drop compiled code: a helper or a global that the source reads is new or has changed."""
        self._loaded.clear()
        self._versions.clear()
        self._latest = None
        self._watch = _Watch(self.source, renewed=self._watch is not None)


#: Settings of Triton's decorator that make no difference here.
_ACCEPTED = frozenset(
    {"noinline", "repr", "debug", "launch_metadata", "version", "do_not_specialize_on_alignment"}
)


def jit(fn: Callable[..., Any] | None = None, **settings: Any) -> Any:
    """Make a kernel of a Python function: `@jit`, or `@jit(do_not_specialize=["n"])`.

    do_not_specialize: integer parameters (names or positions) whose value 1 and divisibility by
        16 make no difference to the code.
    options: for the front end, for example {"allow_any_block_size": True}.
    Other settings of Triton's decorator (noinline, repr, debug, ...) are accepted.
    """
    known = {name: settings.pop(name) for name in ("do_not_specialize", "options")
             if name in settings}  # fmt: skip
    unknown = settings.keys() - _ACCEPTED
    if unknown:
        raise KernelError(
            f"jit has no setting {', '.join(sorted(unknown))}",
            hint=f"it has do_not_specialize and options; accepted: {', '.join(sorted(_ACCEPTED))}",
            code="K121",
        )
    if fn is None:
        return lambda function: JitFunction(function, **known)
    return JitFunction(fn, **known)
