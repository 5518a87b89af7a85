"""What the compiler knows about a machine: every machine number comes from here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

__all__ = ["CacheDescription", "TargetDescription"]


@dataclass(frozen=True, slots=True)
class CacheDescription:
    """One data cache as a single core sees it."""

    level: int
    size_bytes: int
    line_bytes: int = 64
    shared_by_cores: int = 1


@dataclass(frozen=True, slots=True)
class TargetDescription:
    """One architecture, as a frozen record.

    name: the target's folder under `targets/`, for example "x86_64".
    triple, cpu, features: what LLVM is told; empty for targets that LLVM does not serve.
    vector_bits: width of one vector register; vector_registers: how many there are.
    masked_memory: masked vector loads and stores are cheap (AVX2 loads, AVX-512 both, SVE, RVV).
    fast_types: dtypes with native vector arithmetic; others are widened to compute.
    fma: fused multiply-add in vector registers.
    native: what is one instruction here and not everywhere: "f16" (conversion to and from f32),
        "minimum" (the IEEE minimum and maximum that keep NaN), "gather".
    cores: how many hardware cores launches may use.
    """

    name: str
    triple: str = ""
    cpu: str = ""
    features: str = ""
    vector_bits: int = 128
    vector_registers: int = 16
    fma: bool = True
    native: tuple[str, ...] = ()
    masked_memory: bool = False
    fast_types: tuple[str, ...] = ("f32", "f64", "i8", "i16", "i32", "i64")
    pointer_bits: int = 64
    cores: int = 1
    caches: tuple[CacheDescription, ...] = ()
    any_block_size: bool = True
    limits: dict[str, int] = field(default_factory=dict, hash=False)

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits one vector register holds."""
        return max(1, self.vector_bits // bits)

    def cache_bytes(self, level: int, default: int) -> int:
        """Size of the level-`level` data cache, or `default` where it is unknown."""
        for cache in self.caches:
            if cache.level == level:
                return cache.size_bytes
        return default

    def key(self) -> str:
        """A stable text that tells code for this machine from code for another."""
        record = asdict(self)
        del record["cores"]
        return repr(sorted(record.items()))
