"""Where every value of a graph lives: views folded, results in place, states updated in place.

    assign(graph) -> Layout

Reshapes, transposes, broadcasts and slices become strided views of what they are taken from; a
copy is made only where an operator needs row-major data or a reshape cannot be expressed by
strides. A result takes over the memory of an input that nobody reads any more, where the operator
allows it. The new value of a state is written straight into the state where every reader of the
old value has run; else it is copied there at the end of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.memory.planner import Interval
from isthmus.ops.standard import TensorSpec, View, contiguous_strides
from isthmus.program.graph import Graph, Node, Value
from isthmus.program.index_maps import viewed
from isthmus.program.nodes import inplace_inputs, is_view, strided_inputs

__all__ = ["Command", "Layout", "Storage", "Tensor", "assign", "reshaped_strides"]


@dataclass(slots=True, eq=False)
class Storage:
    """A piece of memory.

    kind: "arena" (alive from command `first` to `last`), "state", "input" (batch, scalars and
        key, written before each step) or "constant" (filled once).
    source: the GraphInput or the node that fills it.
    """

    name: str
    kind: str
    size_bytes: int
    source: Any = None
    first: int = -1
    last: int = -1


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of a storage from element `offset` on."""

    storage: Storage
    offset: int
    view: View

    @property
    def offset_bytes(self) -> int:
        return self.offset * self.view.dtype.size_bytes

    @property
    def is_whole(self) -> bool:
        """Whether this is all of its storage, row-major."""
        size_bytes = self.view.size * self.view.dtype.size_bytes
        return (
            self.offset == 0 and self.view.is_contiguous and (size_bytes == self.storage.size_bytes)
        )

    def extent_bytes(self) -> tuple[int, int]:
        """First byte, and the byte behind the last, within the storage."""
        view = self.view
        if view.size == 0:
            return self.offset_bytes, self.offset_bytes
        last = sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
        return self.offset_bytes, self.offset_bytes + (last + 1) * view.dtype.size_bytes


@dataclass(slots=True, eq=False)
class Command:
    """One node with the tensors that it reads and writes."""

    node: Node
    inputs: list[Tensor | None]
    outputs: list[Tensor]


@dataclass(slots=True)
class Layout:
    """The commands of a step in order, and all memory that they use.

    outputs: name -> tensor to read after the step.
    """

    commands: list[Command] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    copies: int = 0
    inplace: int = 0

    def intervals(self) -> tuple[list[Storage], list[Interval]]:
        """The storages of the arena and their lifetimes."""
        arena = [one for one in self.storages if one.kind == "arena"]
        return arena, [Interval(one.name, one.first, one.last, one.size_bytes) for one in arena]


def reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], new: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides that walk the elements of a strided tensor under the shape `new`; None where no
    strides do."""
    if 0 in new:
        return contiguous_strides(new)
    old = [(size, step) for size, step in zip(shape, strides, strict=True) if size != 1]
    wanted = [size for size in new if size != 1]
    found: list[int] = []
    place = 0
    start = 0
    while place < len(old):
        taken, have, want = place, old[place][0], 1
        begin = start
        while True:
            while want < have and start < len(wanted):
                want *= wanted[start]
                start += 1
            if want == have:
                break
            taken += 1
            have *= old[taken][0]
        for index in range(place, taken):
            if old[index][1] != old[index + 1][0] * old[index + 1][1]:
                return None
        step = old[taken][1]
        steps: list[int] = []
        for size in reversed(wanted[begin:start]):
            steps.insert(0, step)
            step *= size
        found += steps
        place = taken + 1
    by_size = iter(found)
    return tuple(0 if size == 1 else next(by_size) for size in new)


def _view_of(node: Node, source: Tensor) -> Tensor | None:
    """The result of a view node; None for a reshape that strides cannot express."""
    view = source.view
    shape = node.outputs[0].spec.shape
    if node.op == "transpose":
        order = node.attrs["order"]
        strides = tuple(view.strides[axis] for axis in order)
        return Tensor(source.storage, source.offset, View(shape, view.dtype, strides))
    if node.op == "broadcast_to":
        walked = zip(view.shape, view.strides, strict=True)
        own = [0 if size == 1 else step for size, step in walked]
        strides = (0,) * (len(shape) - len(own)) + tuple(own)
        return Tensor(source.storage, source.offset, View(shape, view.dtype, strides))
    if node.op == "slice":
        axis, start, step = node.attrs["axis"], node.attrs["start"], node.attrs["step"]
        axis %= len(view.shape)
        strides = tuple(s * step if i == axis else s for i, s in enumerate(view.strides))
        offset = source.offset + start * view.strides[axis]
        return Tensor(source.storage, offset, View(shape, view.dtype, strides))
    if view.is_contiguous:
        return Tensor(source.storage, source.offset, View.contiguous(shape, view.dtype))
    strides = reshaped_strides(view.shape, view.strides, shape)
    if strides is None:
        return None
    return Tensor(source.storage, source.offset, View(shape, view.dtype, strides))


class _Assignment:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.layout = Layout()
        self.tensors: dict[Value, Tensor] = {}
        self.contiguous: dict[Value, Tensor] = {}
        self.producers: dict[Storage, tuple[int, int]] = {}
        self.sources: dict[str, Tensor] = {}
        for entry in graph.inputs.values():
            kind = "state" if entry.kind == "state" else "input"
            tensor = self._new(entry.name, kind, entry.value.spec, entry)
            self.tensors[entry.value] = self.layout.inputs[entry.name] = tensor

    def _new(self, name: str, kind: str, spec: TensorSpec, source: Any = None) -> Tensor:
        storage = Storage(name, kind, spec.size_bytes, source)
        self.layout.storages.append(storage)
        return Tensor(storage, 0, View.contiguous(spec.shape, spec.dtype))

    # Commands with views folded

    def tensor(self, value: Value) -> Tensor:
        """Where `value` lies; its node has been seen, or it is a view or a constant."""
        found = self.tensors.get(value)
        if found is not None:
            return found
        node = value.producer
        assert node is not None, f"{value} has no producer and is no input"
        if is_view(node):
            source = viewed(node)
            found = _view_of(node, self.tensor(source))
            if found is None:  # a reshape of data in another order
                found = _view_of(node, self._copy(source))
                assert found is not None
        else:
            found = self._new(value.name, "constant", value.spec, node)
        self.tensors[value] = found
        return found

    def _copy(self, value: Value) -> Tensor:
        """`value` in row-major order of its own, copied where it is first needed."""
        made = self.contiguous.get(value)
        if made is None:
            source = self.tensor(value)
            made = self._new(f"{value.name}.copy", "arena", value.spec)
            node = Node("copy", [value], [], {}, value.producer.source if value.producer else "")
            self._add(Command(node, [source], [made]))
            self.layout.copies += 1
            self.contiguous[value] = made
        return made

    def _add(self, command: Command) -> None:
        for index, tensor in enumerate(command.outputs):
            self.producers[tensor.storage] = (len(self.layout.commands), index)
        self.layout.commands.append(command)

    def read(self, node: Node, index: int) -> Tensor | None:
        """Input number `index` of a node in a layout that it takes."""
        value = node.inputs[index]
        if value is None:
            return None
        tensor = self.tensor(value)
        if tensor.view.is_contiguous or index in strided_inputs(node):
            return tensor
        return self._copy(value)

    def _fill(self, value: Value) -> Node | None:
        """The constant that `value` repeats, if it is filled with one number."""
        node = value.producer
        while node is not None and node.op in ("broadcast_to", "reshape"):
            node = viewed(node).producer
        return node if node is not None and node.op == "constant" else None

    def make_commands(self) -> None:
        for node in self.graph.nodes:
            if is_view(node) or node.op in ("constant", "arange"):
                continue
            inputs = [self.read(node, index) for index in range(len(node.inputs))]
            outputs = []
            for value in node.outputs:
                self.tensors[value] = self._new(value.name, "arena", value.spec)
                outputs.append(self.tensors[value])
            self._add(Command(node, inputs, outputs))

    # States

    def _reads(self, storage: Storage) -> list[int]:
        """Numbers of the commands that read `storage`."""
        return [
            number
            for number, command in enumerate(self.layout.commands)
            if any(tensor and tensor.storage is storage for tensor in command.inputs)
        ]

    def update_states(self) -> None:
        """Let the producers of new states write into them, or copy."""
        updated = {
            self.tensors[self.graph.inputs[name].value].storage for name in self.graph.updates
        }
        early: dict[tuple[Storage, int, View], Tensor] = {}

        def saved(tensor: Tensor) -> Tensor:
            """An old state that must outlive its update, copied before the first command."""
            key = (tensor.storage, tensor.offset, tensor.view)
            if key not in early:
                name = f"{tensor.storage.name}.old"
                early[key] = self._new(name, "arena", tensor.view.spec)
            return early[key]

        def safe(value: Value) -> Tensor:
            tensor = self.tensor(value)
            return saved(tensor) if tensor.storage in updated else tensor

        # what is read after the last command must not be a state that has changed by then
        self.layout.outputs = {name: safe(value) for name, value in self.graph.outputs.items()}
        filled: list[Command] = []
        for name, value in self.graph.updates.items():
            state = self.tensors[self.graph.inputs[name].value]
            constant = self._fill(value)
            if constant is not None:
                node = Node("fill", [], [], {"value": constant.attrs["value"]})
                filled.append(Command(node, [], [state]))
            elif value is not self.graph.inputs[name].value:
                self.sources[name] = safe(value)
        pending: list[tuple[str, Tensor]] = []
        for name in list(self.sources):
            state = self.tensors[self.graph.inputs[name].value]
            if self._write_into(self.sources[name], state):
                self._replace(self.sources[name].storage, state.storage)
            else:
                pending.append((name, state))
        for (storage, offset, view), target in early.items():
            node = Node("copy", [], [])
            self.layout.commands.insert(0, Command(node, [Tensor(storage, offset, view)], [target]))
            self.layout.copies += 1
        for name, state in pending:
            node = Node("copy", [], [])
            self.layout.commands.append(Command(node, [self.sources[name]], [state]))
            self.layout.copies += 1
        self.layout.commands += filled

    def _write_into(self, tensor: Tensor, state: Tensor) -> bool:
        """Whether the command that makes `tensor` may write it straight into `state`; that
        command moves behind the last reader of the old state where nobody needs it earlier."""
        if tensor.storage not in self.producers or not tensor.is_whole:
            return False
        if tensor.storage.kind != "arena" or tensor.view.dtype != state.view.dtype:
            return False
        number, output = self.producers[tensor.storage]
        command = self.layout.commands[number]
        reads = self._reads(state.storage)
        if number in reads:
            allowed = inplace_inputs(command.node, output)
            for index, given in enumerate(command.inputs):
                is_old = given is not None and given.storage is state.storage
                if given and is_old and (index not in allowed or not given.is_whole):
                    return False
        last = max(reads, default=-1)
        if last <= number:
            return True
        made = {one.storage for one in command.outputs}
        first_use = min(
            (n for n, one in enumerate(self.layout.commands)
             if any(t and t.storage in made for t in one.inputs)),
            default=len(self.layout.commands),
        )  # fmt: skip
        if first_use <= last:
            return False
        # states that the command writes in place already have no reader behind it: it may move
        self.layout.commands.insert(last, self.layout.commands.pop(number))
        for place in range(number, last + 1):
            for index, one in enumerate(self.layout.commands[place].outputs):
                self.producers[one.storage] = (place, index)
        return True

    def _replace(self, old: Storage, new: Storage) -> None:
        """Put `new` wherever `old` was."""

        def swap(tensor: Tensor | None) -> Any:
            inside = tensor is not None and tensor.storage is old
            return Tensor(new, tensor.offset, tensor.view) if tensor and inside else tensor

        for command in self.layout.commands:
            command.inputs = [swap(tensor) for tensor in command.inputs]
            command.outputs = [swap(tensor) for tensor in command.outputs]
        self.layout.outputs = {name: swap(t) for name, t in self.layout.outputs.items()}
        self.sources = {name: swap(t) for name, t in self.sources.items()}
        self.tensors = {value: swap(tensor) for value, tensor in self.tensors.items()}
        self.layout.storages.remove(old)

    # Lifetimes

    def reuse_memory(self) -> None:
        """Lifetimes; results in place of inputs that end with the same command."""
        layout = self.layout
        end = len(layout.commands)
        last: dict[Storage, int] = {}
        for number, command in enumerate(layout.commands):
            for tensor in (*command.inputs, *command.outputs):
                if tensor is not None:
                    last[tensor.storage] = number
        for tensor in layout.outputs.values():
            last[tensor.storage] = end
        moved: dict[Storage, Storage] = {}
        for number, command in enumerate(layout.commands):
            command.inputs = [_moved(tensor, moved) for tensor in command.inputs]
            given_up: set[Storage] = set()
            for output, tensor in enumerate(command.outputs):
                if tensor.storage.kind != "arena":
                    continue
                source = self._ending_input(command, number, output, last, given_up)
                if source is None:
                    tensor.storage.first = number
                    continue
                given_up.add(source)
                moved[tensor.storage] = source
                last[source] = max(last[source], last[tensor.storage])
                layout.storages.remove(tensor.storage)
                layout.inplace += 1
            command.outputs = [_moved(tensor, moved) for tensor in command.outputs]
        layout.outputs = {name: _moved(tensor, moved) for name, tensor in layout.outputs.items()}
        for storage in layout.storages:
            storage.last = last.get(storage, storage.first)

    def _ending_input(
        self, command: Command, number: int, output: int, last: dict[Storage, int],
        given_up: set[Storage],
    ) -> Storage | None:  # fmt: skip
        wanted = command.outputs[output]
        for index in inplace_inputs(command.node, output):
            tensor = command.inputs[index] if index < len(command.inputs) else None
            if (
                tensor is None
                or tensor.storage.kind != "arena"
                or tensor.storage in given_up
                or last[tensor.storage] != number
                or not tensor.is_whole
                or tensor.storage.size_bytes != wanted.storage.size_bytes
                or tensor.view.dtype.size_bytes != wanted.view.dtype.size_bytes
                or any(one.storage is tensor.storage for one in command.outputs)
            ):
                continue
            same = all(
                other is None or other.storage is not tensor.storage
                or (other.is_whole and place in inplace_inputs(command.node, output))
                for place, other in enumerate(command.inputs)
            )  # fmt: skip
            if same:
                return tensor.storage
        return None


def _moved(tensor: Any, moved: dict[Storage, Storage]) -> Any:
    """A tensor (or None) after its storage has moved."""
    if tensor is None:
        return None
    storage = moved.get(tensor.storage)
    if storage is None:
        return tensor
    return Tensor(storage, tensor.offset, tensor.view)


def assign(graph: Graph) -> Layout:
    """Memory for every value of a fused graph. The graph is not changed."""
    assignment = _Assignment(graph)
    assignment.make_commands()
    assignment.update_states()
    assignment.reuse_memory()
    return assignment.layout
