"""The other commands: capture, run, inspect, devices, generate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_devices(isthmus_command):
    described = json.loads(isthmus_command("devices", "--json").stdout)
    assert described["cpu"]["vector_bits"] in (128, 256, 512)
    assert "threads" in isthmus_command("devices").stdout


def test_run_with_profile(isthmus_command, program_file):
    result = json.loads(
        isthmus_command("run", program_file, "--steps", 2, "--profile", "--json").stdout
    )
    assert len(result["outputs"]) == 2
    assert result["outputs"][0]["loss"] == pytest.approx(5.55, abs=0.3)
    operators = {row["operator"] for row in result["profile"]}
    assert any(name.startswith("matmul") for name in operators)
    assert all(row["time_ns"] > 0 for row in result["profile"])


def test_inspect_kernel(isthmus_command):
    result = isthmus_command(
        "inspect", EXAMPLES / "softmax.py:softmax_kernel", "--set", "BLOCK=1024", "--json"
    )
    forms = json.loads(result.stdout)
    assert "tile.reduce" in forms["tile"]
    assert "tile." not in forms["nest"]
    assert "define void @softmax_kernel" in forms["llvm"]
    assembly = isthmus_command(
        "inspect", EXAMPLES / "softmax.py:softmax_kernel", "--show", "asm"
    ).stdout
    assert "softmax_kernel" in assembly


@pytest.mark.parametrize(
    ("form", "expected"),
    [("graph", "cross_entropy("), ("memory", "bound"), ("kernels", "tl.store")],
)
def test_inspect_program(isthmus_command, program_file, form, expected):
    assert expected in isthmus_command("inspect", program_file, "--show", form).stdout


def test_inspect_operators(isthmus_command):
    listed = json.loads(isthmus_command("inspect", "--operators", "--json").stdout)
    assert {"matmul", "layer_norm", "attention", "adamw", "dropout"} <= listed.keys()
    assert all(listed.values())


def test_capture_from_the_command_line(isthmus_command, tmp_path):
    source = tmp_path / "model.py"
    source.write_text(
        "import torch\n"
        "def build():\n"
        "    model = torch.nn.Linear(3, 2)\n"
        "    return dict(model=model,\n"
        "                loss=lambda m, b: (m(b['x']) ** 2).mean(),\n"
        "                optimizer=torch.optim.SGD(model.parameters(), lr=0.1),\n"
        "                example_batch={'x': torch.randn(4, 3)})\n"
    )
    result = isthmus_command("capture", f"{source}:build", "--out", tmp_path / "p.json")
    assert "saved" in result.stdout
    again = isthmus_command("run", tmp_path / "p.json", "--json")
    losses = [step["loss"] for step in json.loads(again.stdout)["outputs"]]
    assert losses == sorted(losses, reverse=True)


def test_help_names_every_command(isthmus_command):
    text = isthmus_command("--help").stdout
    for command in ("train", "generate", "capture", "run", "inspect", "devices"):
        assert command in text
        assert isthmus_command(command, "--help").stdout
