"""From planned launches to compiled kernels: signatures, facts about arguments, sharing.

Two launches share code when kernel, argument types, constants and facts are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.dtypes import DType
from isthmus.core.errors import InternalError
from isthmus.core.target import TargetDescription
from isthmus.hal.device import BufferRef
from isthmus.jit.compile import CompiledKernel, Specialisation, compile_kernels
from isthmus.ops.standard import Launch, Slot

__all__ = ["BoundLaunch", "Memory", "bind_launch", "compile_launches"]

#: Front-end options of all kernels of a program.
OPTIONS = {"allow_any_block_size": True}


@dataclass(frozen=True, slots=True)
class Memory:
    """What a pointer argument is bound to: a place, how far it reaches, what it holds."""

    ref: BufferRef
    size_bytes: int
    dtype: DType
    written: bool

    @property
    def start(self) -> tuple[int, int]:
        return id(self.ref.buffer), self.ref.offset_bytes

    def overlaps(self, other: Memory) -> bool:
        """Whether both reach a common byte."""
        if self.ref.buffer is not other.ref.buffer:
            return False
        first, second = self.ref.offset_bytes, other.ref.offset_bytes
        return first < second + other.size_bytes and second < first + self.size_bytes


@dataclass(frozen=True, slots=True)
class BoundLaunch:
    """A launch with its code's identity and the arguments that remain at run time."""

    specialisation: Specialisation
    key: tuple[Any, ...]
    arguments: tuple[Any, ...]
    grid: tuple[int, int, int]
    label: str


def _type_text(dtype: DType) -> str:
    return "*i1" if dtype.name == "bool" else f"*{dtype.name}"


def bind_launch(launch: Launch, memory: Callable[[Slot], Memory], label: str) -> BoundLaunch:
    """Arguments in the order of the kernel's parameters, and what is known of them."""
    kernel = launch.kernel
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    facts: dict[str, dict[str, Any]] = {}
    arguments: list[Any] = []
    pointers: list[tuple[str, int, Memory]] = []
    for parameter in kernel.source.parameters:
        name = parameter.name
        if name not in launch.args:
            raise InternalError(f"the launch of {kernel.source.name} lacks argument {name!r}")
        value = launch.args[name]
        if isinstance(value, Slot):
            bound = memory(value)
            signature[name] = _type_text(bound.dtype)
            facts[name] = {"divisibility": 16} if bound.ref.offset_bytes % 16 == 0 else {}
            pointers.append((name, len(arguments), bound))
            arguments.append(bound.ref)
        elif parameter.is_constexpr or value is None or not isinstance(value, (int, float)):
            constants[name] = value
        elif isinstance(value, bool):
            signature[name] = "i1"
            arguments.append(value)
        elif isinstance(value, int):
            fixed = name in kernel.do_not_specialize
            if value == 1 and not fixed:
                constants[name] = 1
                continue
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            facts[name] = {"divisibility": 16} if value % 16 == 0 and not fixed else {}
            arguments.append(value)
        else:
            signature[name] = "f32"
            arguments.append(value)
    _add_alias_facts(pointers, facts)
    facts = {name: entry for name, entry in facts.items() if entry}
    specialisation = kernel.specialisation(signature, constants, facts, OPTIONS)
    key = (
        id(kernel), tuple(signature.items()),
        tuple((n, _hashable(v)) for n, v in constants.items()),
        tuple((n, tuple(entry.items())) for n, entry in facts.items()),
    )  # fmt: skip
    return BoundLaunch(specialisation, key, tuple(arguments), launch.grid, label)


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return (type(value), value) if isinstance(value, (int, float)) else value


def _add_alias_facts(
    pointers: Sequence[tuple[str, int, Memory]], facts: Mapping[str, dict[str, Any]]
) -> None:
    """`noalias` where a pointer meets no other, or only such as start where it starts;
    `same_as` with the number of the earlier argument that starts there. Two pointers that are
    only read never meet."""
    for name, _, one in pointers:
        others = [
            other for other_name, _, other in pointers
            if other_name != name and (one.written or other.written) and one.overlaps(other)
        ]  # fmt: skip
        if all(other.start == one.start for other in others):
            facts[name]["noalias"] = True
        if others:
            first = min(
                (number for _, number, other in pointers if other.start == one.start), default=-1
            )
            own = next(number for other_name, number, _ in pointers if other_name == name)
            if 0 <= first < own:
                facts[name]["same_as"] = first


def compile_launches(
    launches: Sequence[BoundLaunch], target: TargetDescription,
    progress: Callable[[int, int], None] | None = None,
) -> dict[tuple[Any, ...], CompiledKernel]:  # fmt: skip
    """Compiled code by the launches' keys; each distinct kernel once."""
    distinct: dict[tuple[Any, ...], Specialisation] = {}
    for launch in launches:
        distinct.setdefault(launch.key, launch.specialisation)
    compiled = compile_kernels(list(distinct.values()), target, progress=progress)
    return dict(zip(distinct, compiled, strict=True))
