"""From a specialised kernel to loadable code: language, passes, lowering, emission, caches."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from isthmus.core.config import config
from isthmus.core.target import TargetDescription
from isthmus.hal.device import EntryPoint
from isthmus.ir.core import Function
from isthmus.ir.printer import print_function
from isthmus.ir.types import PointerType, ScalarType, Type
from isthmus.jit.arguments import constant_key
from isthmus.jit.cache import load_kernel, package_digest, store_kernel
from isthmus.jit.statistics import statistics
from isthmus.language.frontend import build
from isthmus.language.source import KernelSource
from isthmus.lowering.nest import LoweredKernel, lower
from isthmus.passes.pipeline import run as run_passes
from isthmus.targets.llvm.compile import assembly, compile_object
from isthmus.targets.llvm.emit import emit_module

__all__ = ["CompiledKernel", "Specialisation", "Stages", "compile_kernel", "compile_kernels"]


@dataclass(frozen=True, slots=True)
class Specialisation:
    """Everything that decides a kernel's code.

    signature: parameter name -> type text; constexprs: parameter name -> value;
    attrs: parameter name -> facts; options: front-end options.
    """

    source: KernelSource
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def key(self, target: TargetDescription) -> str:
        """A digest under which the compiled code is kept."""
        parts = [
            package_digest(),
            target.key(),
            self.source.fingerprint(),
            self.source.name,
            repr(sorted(self.signature.items())),
            repr(sorted((name, repr(constant_key(v))) for name, v in self.constexprs.items())),
            repr(sorted((n, sorted(facts.items())) for n, facts in self.attrs.items())),
            repr(sorted(self.options.items())),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Code for one specialisation: an object file and its entry point."""

    specialisation: Specialisation
    key: str
    code: bytes
    entry: EntryPoint
    target: TargetDescription

    def stages(self) -> Stages:
        """All forms of the kernel on its way to code, built again for inspection."""
        return Stages(self.specialisation, self.target, self.entry.name)

    @property
    def asm(self) -> dict[str, Any]:
        """The forms as text by name: tile, nest, llvm, assembly; and the object's bytes."""
        stages = self.stages()
        return {
            "tile": print_function(stages.tile),
            "nest": print_function(stages.lowered.function),
            "llvm": stages.llvm,
            "assembly": stages.assembly(),
            "object": self.code,
        }


class Stages:
    """The forms of one specialisation: tile IR, nest IR, LLVM IR, assembly."""

    def __init__(
        self, specialisation: Specialisation, target: TargetDescription, name: str
    ) -> None:
        self._target = target
        self.tile: Function = _tile_function(specialisation, target, name)
        self.lowered: LoweredKernel = lower(self.tile, target)
        self.llvm: str = emit_module([self.lowered.function], target)

    def assembly(self) -> str:
        """Assembly text."""
        return assembly(self.llvm, self._target)

    def object_code(self) -> bytes:
        """The object file."""
        return compile_object(self.llvm, self._target)


def _tile_function(
    specialisation: Specialisation, target: TargetDescription, name: str
) -> Function:
    function = build(
        specialisation.source,
        specialisation.signature,
        specialisation.constexprs,
        specialisation.attrs,
        {**specialisation.options, "target": target},
        name,
    )
    run_passes(function)
    return function


def _parameter_kind(type_: Type) -> str:
    if isinstance(type_, PointerType):
        return "ptr"
    assert isinstance(type_, ScalarType), f"a kernel parameter is a pointer or scalar, got {type_}"
    return type_.name


_memory: OrderedDict[str, tuple[bytes, EntryPoint]] = OrderedDict()
_memory_lock = threading.Lock()
_MEMORY_ENTRIES = 512


def compile_kernel(
    specialisation: Specialisation, target: TargetDescription, *, reason: str = "first use"
) -> CompiledKernel:
    """Code for one specialisation, from memory, from disk, or compiled now.

    Raises: KernelError for mistakes in the kernel.
    """
    key = specialisation.key(target)
    with _memory_lock:
        found = _memory.get(key)
        if found is not None:
            _memory.move_to_end(key)
    if found is not None:
        statistics.count("memory_hits")
        return CompiledKernel(specialisation, key, *found, target)
    found = load_kernel(key)
    if found is not None:
        statistics.count("disk_hits")
    else:
        statistics.count("compiles", f"{specialisation.source.name}: {reason}")
        name = f"{specialisation.source.name}_{key[:12]}"
        stages = Stages(specialisation, target, name)
        parameters = tuple(_parameter_kind(arg.type) for arg in stages.tile.args)
        entry = EntryPoint(name, parameters, stages.lowered.scratch_bytes)
        found = (stages.object_code(), entry)
        store_kernel(key, *found)
    with _memory_lock:
        _memory[key] = found
        while len(_memory) > _MEMORY_ENTRIES:
            _memory.popitem(last=False)
    return CompiledKernel(specialisation, key, *found, target)


def compile_kernels(
    specialisations: Sequence[Specialisation],
    target: TargetDescription,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[CompiledKernel]:
    """Code for many specialisations; equal ones are compiled once.

    Several threads work at it: while one is in LLVM (which llvmlite lets one thread enter at a
    time), others are in the front end and the lowering.

    progress: called with (finished, all) after each distinct kernel.
    """
    keys = [specialisation.key(target) for specialisation in specialisations]
    distinct = dict(zip(keys, specialisations, strict=True))
    compiled: dict[str, CompiledKernel] = {}

    def work(key: str) -> None:
        compiled[key] = compile_kernel(distinct[key], target, reason="program")
        if progress is not None:
            progress(len(compiled), len(distinct))

    with ThreadPoolExecutor(max_workers=min(config().num_threads, 8)) as pool:
        futures = [pool.submit(work, key) for key in distinct]
        try:
            for future in futures:
                future.result()
        finally:  # after a mistake or Ctrl-C, do not compile the rest
            for future in futures:
                future.cancel()
    return [compiled[key] for key in keys]
