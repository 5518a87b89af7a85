"""Program files: round trip, readable, refused when they are not whole."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import isthmus
from isthmus.core.errors import ProgramError
from isthmus.program.file import load_program
from isthmus.program.session import Session
from support.programs import tiny_gpt


@pytest.fixture(scope="module")
def stored() -> isthmus.Program:
    """A program with stored weights."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    return isthmus.capture(
        model, lambda m, b: m(b["x"]).pow(2).mean(),
        torch.optim.SGD(model.parameters(), lr=0.1), {"x": torch.randn(4, 3)},
    )  # fmt: skip


def test_round_trip(tmp_path):
    program = tiny_gpt()
    program.save(tmp_path / "p.json")
    again = load_program(tmp_path / "p.json")
    assert again.text() == program.text()
    again.save(tmp_path / "q.json")
    assert (tmp_path / "q.json").read_bytes() == (tmp_path / "p.json").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.json", "q.json"]


def test_one_line_per_node(tmp_path):
    program = tiny_gpt()
    program.save(tmp_path / "p.json")
    lines = (tmp_path / "p.json").read_text().splitlines()
    nodes = sum(len(graph.nodes) for graph in program.graphs.values())
    assert sum(line.startswith('    ["') for line in lines) == nodes
    assert max(len(line) for line in lines if line.startswith('    ["')) < 1500


def test_stored_weights_lie_beside_and_are_checked(tmp_path, stored):
    stored.save(tmp_path / "p.json")
    again = load_program(tmp_path / "p.json")
    np.testing.assert_array_equal(again.weights["model.weight"], stored.weights["model.weight"])
    session = Session(again)
    session.initialise(5)
    np.testing.assert_array_equal(session.states["model.weight"], stored.weights["model.weight"])
    weights = tmp_path / "p.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ProgramError, match="damaged, or belong to another program"):
        load_program(tmp_path / "p.json")
    weights.unlink()
    with pytest.raises(ProgramError, match=r"cannot read its weights .*p\.safetensors"):
        load_program(tmp_path / "p.json")


def test_runs_without_pytorch(tmp_path, stored):
    stored.save(tmp_path / "p.json")
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from isthmus.program.file import load_program\n"
        "from isthmus.program.session import Session\n"
        f"session = Session(load_program({str(tmp_path / 'p.json')!r}))\n"
        "session.initialise(0)\n"
        "x = np.ones((4, 3), np.float32)\n"
        "print(float(session.run('train', {'x': x}, {'learning_rate': 0.1})['loss']))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    weight, bias = stored.weights["model.weight"], stored.weights["model.bias"]
    expected = ((weight.astype(np.float64).sum(1) + bias) ** 2).mean()
    assert float(result.stdout) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("keep", [0, 10, 1000, -3])
def test_truncated(tmp_path, keep):
    tiny_gpt().save(tmp_path / "p.json")
    text = (tmp_path / "p.json").read_text()
    (tmp_path / "p.json").write_text(text[:keep])
    with pytest.raises(ProgramError, match=r"p\.json:\d+: the program is truncated or damaged"):
        load_program(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=99), "format version 99; this version reads 1"),
        (lambda d: d.update(format="other"), "not a program file"),
        (lambda d: d.pop("graphs"), "is damaged: KeyError"),
        (
            lambda d: d["graphs"]["train"]["nodes"][0].__setitem__(0, "teleport"),
            "'teleport' is not in",
        ),
        (lambda d: d["graphs"]["train"]["nodes"].pop(0), "before it is computed"),
        (lambda d: d["graphs"]["train"]["inputs"][0].update(spec="f33[2]"), "unknown dtype 'f33'"),
        (lambda d: d["graphs"]["train"]["inputs"][0].update(spec="f32[a]"), "is damaged"),
    ],
)
def test_damage_is_named(tmp_path, change, message):
    tiny_gpt().save(tmp_path / "p.json")
    data = json.loads((tmp_path / "p.json").read_text())
    change(data)
    (tmp_path / "p.json").write_text(json.dumps(data))
    with pytest.raises(ProgramError, match=message):
        load_program(tmp_path / "p.json")


def test_wrong_paths(tmp_path):
    with pytest.raises(ProgramError, match="cannot read program"):
        load_program(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProgramError, match="it is not text"):
        load_program(tmp_path / "binary.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ProgramError, match="not a program file"):
        load_program(tmp_path / "list.json")
    with pytest.raises(ProgramError, match=r"ends in \.json"):
        tiny_gpt().save(tmp_path / "p.bin")
    with pytest.raises(ProgramError, match="cannot write"):
        tiny_gpt().save(tmp_path / "missing" / "p.json")
