"""The kernel cache: keys that cover everything, damage that heals, processes side by side."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def run(script: str, cache: Path, folder: Path) -> str:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(script))
    result = subprocess.run(
        [sys.executable, path], cwd=folder, capture_output=True, text=True, timeout=120,
        env={"ISTHMUS_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin"}, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


SCRIPT = """
    import numpy as np
    import isthmus
    import isthmus.language as tl
    from isthmus.jit.statistics import statistics

    SHIFT = tl.constexpr({shift})

    @isthmus.jit
    def helper(x):
        return x * {factor}

    @isthmus.jit
    def kernel(x_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(x_ptr + offsets, helper(tl.load(x_ptr + offsets)) + SHIFT)

    x = np.ones(64, np.float32)
    kernel[(1,)](x, BLOCK=64)
    print(x[0], statistics.compiles, statistics.disk_hits, statistics.corrupt_entries)
"""


def test_second_process_reads_and_changes_are_seen(tmp_path):
    """FIELD_REPORTS B42: another helper constant or global gives another result."""
    cache = tmp_path / "cache"
    assert run(SCRIPT.format(shift=1, factor=2), cache, tmp_path) == "3.0 1 0 0"
    assert run(SCRIPT.format(shift=1, factor=2), cache, tmp_path) == "3.0 0 1 0"
    assert run(SCRIPT.format(shift=1, factor=5), cache, tmp_path) == "6.0 1 0 0"
    assert run(SCRIPT.format(shift=7, factor=2), cache, tmp_path) == "9.0 1 0 0"


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "foreign"])
def test_damaged_entries_are_rebuilt(tmp_path, damage):
    cache = tmp_path / "cache"
    run(SCRIPT.format(shift=0, factor=2), cache, tmp_path)
    (entry,) = (cache / "kernels").rglob("*.bin")
    content = bytearray(entry.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "flip":
        content[-10] ^= 0xFF
    elif damage == "empty":
        content = bytearray()
    else:
        content = bytearray(b"isthmus cache 1\n{}\ncode")
    entry.write_bytes(content)
    assert run(SCRIPT.format(shift=0, factor=2), cache, tmp_path) == "2.0 1 0 1"
    assert run(SCRIPT.format(shift=0, factor=2), cache, tmp_path) == "2.0 0 1 0"


def test_cache_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert run(SCRIPT.format(shift=0, factor=2), tmp_path / "file", tmp_path) == "2.0 1 0 0"


def test_changes_in_the_same_process(tmp_path):
    script = """
        import numpy as np
        import isthmus
        import isthmus.language as tl

        SHIFT = tl.constexpr(1)

        @isthmus.jit
        def helper(x):
            return x + 1

        @isthmus.jit
        def kernel(x_ptr, BLOCK: tl.constexpr):
            offsets = tl.arange(0, BLOCK)
            tl.store(x_ptr + offsets, helper(tl.load(x_ptr + offsets)) * SHIFT)

        def call():
            x = np.ones(16, np.float32)
            kernel[(1,)](x, BLOCK=16)
            return x[0]

        first = call()
        SHIFT = tl.constexpr(10)
        second = call()

        @isthmus.jit
        def helper(x):
            return x + 4

        print(first, second, call())
    """
    assert run(script, tmp_path / "cache", tmp_path) == "2.0 20.0 50.0"


def test_memory_of_code_is_given_back(tmp_path):
    """200 compiles and 600 loads; LLVM's pass pipeline itself keeps about 80 KiB a compile."""
    script = """
        import gc, resource
        from isthmus.jit.decorator import default_device
        import isthmus
        import isthmus.language as tl

        @isthmus.jit
        def kernel(x_ptr, V: tl.constexpr):
            offsets = tl.arange(0, 64)
            tl.store(x_ptr + offsets, tl.exp(tl.load(x_ptr + offsets)) * V)

        def resident_kib():
            gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize() / 1024

        device = default_device()

        def compile_and_load(first, count):
            for v in range(first, first + count):
                c = kernel.compile({"x_ptr": "*f32"}, {"V": float(v)})
                device.load([c.code], [c.entry])
            return c

        def load(c, count):
            for _ in range(count):
                device.load([c.code], [c.entry])

        load(compile_and_load(0, 40), 100)
        before = resident_kib()
        compiled = compile_and_load(100, 200)
        middle = resident_kib()
        load(compiled, 600)
        print((middle - before) / 200, (resident_kib() - middle) / 600)
    """
    per_compile_kib, per_load_kib = map(float, run(script, tmp_path / "cache", tmp_path).split())
    assert per_compile_kib < 140
    assert per_load_kib < 16


def test_processes_side_by_side_share_a_cache(tmp_path):
    cache = tmp_path / "cache"
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT.format(shift=1, factor=3)))
    env = {"ISTHMUS_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, path]
    processes = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=env)
        for _ in range(4)
    ]
    outputs = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert [(value, corrupt) for value, _, _, corrupt in outputs] == [("4.0", "0")] * 4
    (entry,) = (cache / "kernels").rglob("*.bin")
    assert list(cache.rglob("*.partial")) == []
    assert entry.stat().st_size > 100
