"""What an x86-64 machine offers: read from the host, or one of three fixed levels.

Vectors are as wide as the machine has them. Measured on a Zen 4, whose 512-bit operations take
two passes: products run 1.05 times as fast with 512 bits and 32 registers as with 256 bits and
32 registers, 1.1 times as fast as with 256 bits and 16, and exp, erf and log 1.2 times as fast.

`masked_memory` is true from AVX-512 on. AVX2 masks only 32- and 64-bit elements, and LLVM turns
masked accesses of narrower ones into a branch per lane there.
"""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding as llvm

from isthmus.core.config import available_cores
from isthmus.core.errors import ConfigError
from isthmus.core.target import CacheDescription, TargetDescription

__all__ = ["LEVELS", "describe", "describe_host"]

TRIPLE = "x86_64-unknown-linux-gnu"

_AVX2 = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse4.2,+cx16"
_AVX512 = "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"

#: Level -> (cpu, features, vector bits, vector registers, fma, masked memory, native).
LEVELS: dict[str, tuple[str, str, int, int, bool, bool, tuple[str, ...]]] = {
    "sse42": ("x86-64-v2", "+sse4.2,+popcnt,+cx16", 128, 16, False, False, ()),
    "avx2": ("haswell", _AVX2, 256, 16, True, False, ("f16",)),
    "avx512": ("skylake-avx512", f"{_AVX2},{_AVX512}", 512, 32, True, True, ("f16",)),
}

#: Sizes used where the host does not tell.
DEFAULT_CACHES = (
    CacheDescription(1, 32 << 10),
    CacheDescription(2, 1 << 20),
    CacheDescription(3, 8 << 20, shared_by_cores=4),
)


def describe(level: str = "avx2") -> TargetDescription:
    """A fixed feature level: sse42, avx2 or avx512. Raises ConfigError for another."""
    if level not in LEVELS:
        raise ConfigError(f"x86_64 has no level {level!r}; it must be one of {', '.join(LEVELS)}")
    cpu, features, bits, registers, fma, masked, native = LEVELS[level]
    return TargetDescription(
        name="x86_64",
        triple=TRIPLE,
        cpu=cpu,
        features=features,
        vector_bits=bits,
        vector_registers=registers,
        fma=fma,
        native=native,
        masked_memory=masked,
        cores=available_cores(),
        caches=DEFAULT_CACHES,
    )


def describe_host() -> TargetDescription:
    """This machine: its CPU and features from LLVM, its caches from the kernel."""
    features = llvm.get_host_cpu_features()
    wide = all(features.get(name) for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))
    level = "avx512" if wide else "avx2" if features.get("avx2") else "sse42"
    _, _, bits, registers, _, masked, _ = LEVELS[level]
    return TargetDescription(
        name="x86_64",
        triple=llvm.get_process_triple(),
        cpu=llvm.get_host_cpu_name(),
        features=features.flatten(),
        vector_bits=bits,
        vector_registers=registers,
        fma=bool(features.get("fma")),
        native=("f16",) if features.get("f16c") else (),
        masked_memory=masked,
        cores=available_cores(),
        caches=_host_caches() or DEFAULT_CACHES,
    )


def _host_caches() -> tuple[CacheDescription, ...]:
    """Data caches of core 0; empty where the kernel does not show them."""
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
            line = int((index / "coherency_line_size").read_text())
            shared = (index / "shared_cpu_list").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified") and size[-1:] in ("K", "M") and size[:-1].isdigit():
            size_bytes = int(size[:-1]) << (10 if size[-1] == "K" else 20)
            found.append(CacheDescription(level, size_bytes, line, _count(shared)))
    return tuple(found)


def _count(cpu_list: str) -> int:
    """How many CPUs a list such as `0-3,8` names."""
    total = 0
    for part in cpu_list.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total
