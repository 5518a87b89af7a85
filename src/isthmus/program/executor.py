"""Runs one graph: fused, planned, compiled, and recorded as one command list.

    executable = Executable(graph, device)
    outputs = executable.step({"tokens": tokens}, {"learning_rate": 3e-4}, key=(seed, step))

A step copies the inputs to their places, makes one native call, and reads the outputs. Nothing
else is computed outside of compiled kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.core.errors import DTypeError, ProgramError
from isthmus.hal.device import BufferRef
from isthmus.hal.registry import open_device
from isthmus.ir.numpy_types import numpy_dtype
from isthmus.memory.planner import ALIGNMENT_BYTES, ArenaPlan, Interval, plan_arena
from isthmus.memory.report import format_bytes
from isthmus.ops.standard import Cost, Plan, Slot, operator
from isthmus.program.fusion import fuse
from isthmus.program.graph import Graph, GraphInput
from isthmus.program.kernels import BoundLaunch, Memory, bind_launch, compile_launches
from isthmus.program.nodes import cost_of_node, plan_node
from isthmus.program.state import States, check_array
from isthmus.program.storage import Command, Storage, Tensor, assign
from isthmus.targets import host_target

__all__ = ["Executable", "ProfileRow", "StepSummary", "open_cpu"]


def open_cpu(threads: int | None = None) -> Any:
    """The host CPU with `threads` threads (default: the setting)."""
    return open_device("cpu", host_target(), threads=threads)


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """Time of all commands of one operator in one step."""

    operator: str
    commands: int
    time_ns: float
    flops: int
    bytes_moved: int

    @property
    def rate_gflops(self) -> float:
        return self.flops / self.time_ns if self.time_ns else 0.0


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What one step is made of."""

    kernels: int
    launches: int
    nodes: int
    copies: int
    inplace: int
    flops: int
    bytes_moved: int
    arena: ArenaPlan
    state_bytes: int

    def __str__(self) -> str:
        return "\n".join((
            f"kernels  {self.kernels} distinct, {self.launches} launches of {self.nodes} nodes",
            f"work     {self.flops / 1e9:.2f} GFLOP, {format_bytes(self.bytes_moved)} moved",
            f"arena    {format_bytes(self.arena.peak_bytes)}, {self.arena.ratio:.3f} times the "
            f"bound of {format_bytes(self.arena.lower_bound_bytes)}",
            f"states   {format_bytes(self.state_bytes)}",
            f"reuse    {self.inplace} results in place, {self.copies} copies",
        ))  # fmt: skip


class _Places:
    """Offsets of small buffers in one allocation."""

    def __init__(self) -> None:
        self.offsets: dict[Storage, int] = {}
        self.size_bytes = 0

    def add(self, storage: Storage) -> None:
        self.offsets[storage] = self.size_bytes
        self.size_bytes += -(-storage.size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class Executable:
    """A graph ready to run on a device.

    states: shared with other graphs of the program; made anew when not given.
    progress: called with (finished, all) while kernels are compiled.
    """

    def __init__(
        self, graph: Graph, device: Any = None, states: States | None = None, *,
        threads: int | None = None, epilogues: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:  # fmt: skip
        self.device = device if device is not None else open_cpu(threads)
        self.states = states if states is not None else States(self.device)
        self.graph = graph
        self.fused = fuse(graph, epilogues=epilogues)
        self.layout = assign(self.fused)
        target = self.device.target
        plans = [_plan(command, target) for command in self.layout.commands]
        self.arena = self._plan_arena(plans)
        self._allocate()
        launches = self._bind(plans)
        compiled = compile_launches(launches, target, progress)
        self._record(launches, compiled)
        self._prepare_io()

    # Building

    def _plan_arena(self, plans: list[Plan]) -> ArenaPlan:
        storages, intervals = self.layout.intervals()
        self._arena_places: dict[Any, int] = {}
        keys: list[Any] = list(storages)
        for number, plan in enumerate(plans):
            for index, size_bytes in enumerate(plan.workspaces):
                keys.append((number, index))
                name = f"{self.layout.commands[number].node.op} workspace"
                intervals.append(Interval(name, number, number, size_bytes))
        plan = plan_arena(intervals)
        self._arena_places = dict(zip(keys, plan.offsets, strict=True))
        return plan

    def _allocate(self) -> None:
        self._buffers: dict[str, Any] = {}
        places = {"input": _Places(), "constant": _Places()}
        for storage in self.layout.storages:
            if storage.kind in places:
                places[storage.kind].add(storage)
            elif storage.kind == "state":
                entry: GraphInput = storage.source
                self._buffers[entry.name] = self.states.buffer(entry.name, entry.value.spec)
        self._places = {kind: one.offsets for kind, one in places.items()}
        self._inputs = self.device.allocate(max(places["input"].size_bytes, 1))
        self._constants = self.device.allocate(max(places["constant"].size_bytes, 1))
        self._arena = self.device.allocate(max(self.arena.peak_bytes, 1))
        for storage, offset in self._places["constant"].items():
            node = storage.source
            (content,) = operator(node.op).reference([], node.attrs)
            spec = node.outputs[0].spec
            array = self._constants.view(numpy_dtype(spec.dtype), spec.shape, offset)
            array[...] = content.astype(array.dtype)

    def _place(self, storage: Storage) -> BufferRef:
        if storage.kind == "arena":
            return BufferRef(self._arena, self._arena_places[storage])
        if storage.kind == "state":
            return BufferRef(self._buffers[storage.source.name])
        buffer = self._inputs if storage.kind == "input" else self._constants
        return BufferRef(buffer, self._places[storage.kind][storage])

    def _memory(self, tensor: Tensor, slot: Slot) -> Memory:
        base = self._place(tensor.storage)
        first, end = tensor.extent_bytes()
        ref = BufferRef(base.buffer, base.offset_bytes + first)
        dtype = slot.dtype or tensor.view.dtype
        return Memory(ref, max(end - first, 1), dtype, slot.kind == "output")

    def _bind(self, plans: list[Plan]) -> list[BoundLaunch]:
        bound: list[BoundLaunch] = []
        self._launch_commands: list[int] = []
        for number, (command, plan) in enumerate(zip(self.layout.commands, plans, strict=True)):

            def memory(
                slot: Slot, command: Command = command, plan: Plan = plan, number: int = number
            ) -> Memory:
                if slot.kind == "workspace":
                    assert slot.dtype is not None, "a workspace names its dtype"
                    ref = BufferRef(self._arena, self._arena_places[(number, slot.index)])
                    return Memory(ref, plan.workspaces[slot.index], slot.dtype, True)
                tensors = command.inputs if slot.kind == "input" else command.outputs
                tensor = tensors[slot.index]
                assert tensor is not None, f"{command.node.op} reads an input that is absent"
                return self._memory(tensor, slot)

            for launch in plan.launches:
                if 0 in launch.grid:
                    continue
                bound.append(bind_launch(launch, memory, command.node.op))
                self._launch_commands.append(number)
        return bound

    def _record(self, launches: list[BoundLaunch], compiled: Mapping[Any, Any]) -> None:
        self.kernels = list({one.key: one for one in compiled.values()}.values())
        loaded = self.device.load(
            [one.code for one in self.kernels], [one.entry for one in self.kernels]
        )
        self._commands = self.device.command_list()
        for launch in launches:
            self._commands.add_launch(
                loaded, compiled[launch.key].entry.name, launch.arguments, launch.grid,
                label=launch.label,
            )  # fmt: skip
        self._commands.finish()
        self._queue = self.device.queue()

    def _array(self, tensor: Tensor) -> np.ndarray:
        """A NumPy view of a tensor in its buffer."""
        base = self._place(tensor.storage)
        view, dtype = tensor.view, numpy_dtype(tensor.view.dtype)
        if view.is_contiguous:
            return base.buffer.view(dtype, view.shape, base.offset_bytes + tensor.offset_bytes)
        first, end = tensor.extent_bytes()
        line = base.buffer.view(
            dtype, ((end - first) // dtype.itemsize,), base.offset_bytes + first
        )
        strides = tuple(step * dtype.itemsize for step in view.strides)
        return np.lib.stride_tricks.as_strided(line, view.shape, strides, writeable=False)

    def _prepare_io(self) -> None:
        self._batch: dict[str, tuple[np.ndarray, Any]] = {}
        self._scalars: dict[str, np.ndarray] = {}
        self._keys: list[np.ndarray] = []
        for name, entry in self.fused.inputs.items():
            if entry.kind == "state":
                continue
            array = self._array(self.layout.inputs[name])
            if entry.kind == "batch":
                self._batch[name] = (array, entry.value.spec)
            elif entry.kind == "scalar":
                self._scalars[name] = array
            else:
                self._keys.append(array)
        self._outputs = {name: self._array(tensor) for name, tensor in self.layout.outputs.items()}

    # Running

    @property
    def batch_names(self) -> Any:
        """The batch entries that a step reads."""
        return self._batch.keys()

    def step(
        self, batch: Mapping[str, np.ndarray] | None = None,
        scalars: Mapping[str, float] | None = None, key: tuple[int, int] = (0, 0),
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Run once: the outputs as arrays of their own.

        Raises: ShapeError, DTypeError or ProgramError naming the input that does not fit.
        """
        self._write_inputs(batch or {}, scalars or {}, key)
        self._queue.submit(self._commands)
        return {name: array.copy() for name, array in self._outputs.items()}

    def _write_inputs(
        self, batch: Mapping[str, np.ndarray], scalars: Mapping[str, float], key: tuple[int, int]
    ) -> None:
        if batch.keys() != self._batch.keys():
            self._refuse_names(batch)
        for name, (array, spec) in self._batch.items():
            given = batch[name]
            if (
                type(given) is not np.ndarray
                or given.shape != array.shape
                or given.dtype != array.dtype
            ):
                check_array(f"batch entry {name!r}", given, spec)
            array[...] = given
        for name, array in self._scalars.items():
            try:
                array[...] = scalars[name]
            except KeyError:
                given = ", ".join(map(repr, scalars)) or "none"
                raise ProgramError(
                    f"graph {self.graph.name!r} needs the scalar {name!r}; given: {given}"
                ) from None
            except (TypeError, ValueError):
                raise DTypeError(
                    f"scalar {name!r} is {scalars[name]!r}; expected a number"
                ) from None
        for array in self._keys:
            array[0], array[1] = key

    def _refuse_names(self, batch: Mapping[str, np.ndarray]) -> None:
        expected = ", ".join(f"{name} {spec}" for name, (_, spec) in self._batch.items()) or "none"
        wrong = [f"lacks {name!r}" for name in self._batch if name not in batch]
        wrong += [f"has an unknown entry {name!r}" for name in batch if name not in self._batch]
        raise ProgramError(
            f"the batch for graph {self.graph.name!r} {' and '.join(wrong)}",
            hint=f"expected entries: {expected}",
        )

    # Reports

    def report(self) -> StepSummary:
        """Counts and sizes of one step."""
        costs = [_cost(command) for command in self.layout.commands]
        return StepSummary(
            kernels=len(self.kernels),
            launches=len(self._commands),
            nodes=len(self.graph.nodes),
            copies=self.layout.copies,
            inplace=self.layout.inplace,
            flops=sum(cost.flops for cost in costs),
            bytes_moved=sum(cost.bytes_moved for cost in costs),
            arena=self.arena,
            state_bytes=self.states.size_bytes,
        )

    def profile(
        self, batch: Mapping[str, np.ndarray] | None = None,
        scalars: Mapping[str, float] | None = None, key: tuple[int, int] = (0, 0),
        *, repeats: int = 3,
    ) -> list[ProfileRow]:  # fmt: skip
        """Time by operator over `repeats` steps, slowest first. States change as in a step."""
        times = np.zeros(len(self._commands), np.int64)
        for _ in range(repeats):
            self._write_inputs(batch or {}, scalars or {}, key)
            self._queue.submit(self._commands, profile=times)
        per_command = np.zeros(len(self.layout.commands))
        np.add.at(per_command, self._launch_commands, times / repeats)
        rows: dict[str, list[Any]] = {}
        for command, time_ns in zip(self.layout.commands, per_command, strict=True):
            cost = _cost(command)
            row = rows.setdefault(_label(command), [0, 0.0, 0, 0])
            for place, more in enumerate((1, float(time_ns), cost.flops, cost.bytes_moved)):
                row[place] += more
        made = [ProfileRow(name, *row) for name, row in rows.items()]
        return sorted(made, key=lambda row: -row.time_ns)

    def profile_commands(self) -> list[tuple[str, str]]:
        """(operator, shapes) of every launch, in order: labels for a timeline."""
        return [
            (_label(self.layout.commands[number]), _shapes(self.layout.commands[number]))
            for number in self._launch_commands
        ]


def _plan(command: Command, target: Any) -> Plan:
    inputs = [None if tensor is None else tensor.view for tensor in command.inputs]
    return plan_node(command.node, inputs, [t.view for t in command.outputs], target)


def _cost(command: Command) -> Cost:
    inputs = [None if tensor is None else tensor.view.spec for tensor in command.inputs]
    return cost_of_node(command.node, inputs, [t.view.spec for t in command.outputs])


def _label(command: Command) -> str:
    """The operator, for fused nodes with what they are made of."""
    node = command.node
    if node.op == "pointwise_group":
        return f"pointwise {node.attrs['group'].name}"
    if node.op == "matmul_epilogue":
        return f"matmul + {node.attrs['group'].name}"
    return node.op


def _shapes(command: Command) -> str:
    tensors = [tensor for tensor in command.inputs if tensor is not None]
    return " ".join("x".join(map(str, t.view.shape)) or "scalar" for t in tensors)
