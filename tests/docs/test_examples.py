"""Every example runs, and every Python block of the README and the documents does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    (page, number, block)
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]
KERNEL_EXAMPLES = ("vector_add", "softmax", "layer_norm", "matmul")


def run_script(path: Path, *arguments: str, folder: Path, seconds: int = 300) -> str:
    result = subprocess.run(
        [sys.executable, path, *arguments],
        cwd=folder, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("name", KERNEL_EXAMPLES)
def test_kernel_example(name, tmp_path):
    output = run_script(ROOT / "examples" / f"{name}.py", folder=tmp_path)
    assert "error" in output or "equal" in output


def test_matmul_example_is_at_most_70_code_lines():
    lines = (ROOT / "examples" / "matmul.py").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("@isthmus.jit"))
    end = next(i for i, line in enumerate(lines) if line.startswith("def main"))
    code = [line for line in lines[start:end] if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 70


def test_mlp_example_reaches_its_accuracy(tmp_path):
    output = run_script(ROOT / "examples" / "mlp_digits.py", folder=tmp_path)
    accuracy = float(re.search(r"test accuracy ([0-9.]+) %", output).group(1))
    assert accuracy > 97.0


@pytest.mark.parametrize(
    ("page", "number", "block"), BLOCKS, ids=[f"{page.stem}-{number}" for page, number, _ in BLOCKS]
)
def test_python_block(page, number, block, tmp_path):
    script = tmp_path / f"{page.stem}_{number}.py"
    script.write_text(block)
    run_script(script, folder=tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    code = r"^```.*?^```$|`[^`\n]*`"
    prose = re.sub(code, "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
