"""The bundled GPT program: memory plan, fusion, threads, batches."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest

from isthmus.memory.planner import plan_arena
from isthmus.program.file import load_program
from isthmus.program.fusion import fuse
from isthmus.program.program import Program
from isthmus.program.session import Session
from isthmus.program.storage import assign


@pytest.fixture(scope="module")
def program() -> Program:
    with resources.as_file(resources.files("isthmus.program") / "bundled" / "gpt.json") as path:
        return load_program(path)


@pytest.mark.parametrize("graph", ["train", "gradient", "apply", "evaluate", "forward"])
def test_arena_is_within_ten_percent_of_the_bound(program: Program, graph: str) -> None:
    _, intervals = assign(fuse(program.graph(graph))).intervals()
    plan = plan_arena(intervals)
    assert plan.ratio <= 1.10, plan.strategy


def test_element_wise_work_goes_into_products(program: Program) -> None:
    fused = fuse(program.graph("train"))
    groups = [node for node in fused.nodes if node.op == "pointwise_group"]
    products = [node for node in fused.nodes if node.op == "matmul_epilogue"]
    layers = sum(node.op == "attention" for node in fused.nodes)
    # per layer: bias and residual twice, bias and GELU, the gradient of GELU
    assert len(products) == 4 * layers
    # per layer two sums of residual gradients; embedding, clipping, step count
    assert len(groups) <= 2 * layers + 4


def test_states_are_updated_in_place_without_copies(program: Program) -> None:
    layout = assign(fuse(program.graph("train")))
    written = [tensor.storage for command in layout.commands for tensor in command.outputs]
    writes = {storage.name for storage in written if storage.kind == "state"}
    assert writes == set(program.graph("train").updates)
    layers = sum(command.node.op == "attention" for command in layout.commands)
    assert layout.copies <= layers  # the heads of attention, side by side


def losses(program: Program, threads: int) -> tuple[list[float], dict[str, np.ndarray]]:
    session = Session(program, threads=threads)
    session.initialise(3)
    rng = np.random.default_rng(1)
    found = []
    for step in range(3):
        batch = {
            name: rng.integers(0, 256, shape) for name, shape in session.batch_spec("train").items()
        }
        outputs = session.run("train", batch, {"learning_rate": 1e-3}, (0, step))
        found.append(float(outputs["loss"]))
    return found, {name: array.copy() for name, array in session.state_dict().items()}


def test_one_and_two_threads_train_to_the_same_bits(program: Program) -> None:
    one, first = losses(program, 1)
    two, second = losses(program, 2)
    assert one == two
    assert abs(one[0] - np.log(256)) < 0.2
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], name)
