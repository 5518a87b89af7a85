"""The register tile of a product and how a block is cut into panels, from the target alone."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.core.target import TargetDescription
from isthmus.ir.types import BF16, F16, F32, I32, ScalarType

__all__ = ["Panels", "Tiling", "computed_in", "depth_block", "powers_of_two", "tiling"]

#: Deepest block of k that is packed at once; the panels of one step then fit the first cache.
MAX_DEPTH = 256


@dataclass(frozen=True, slots=True)
class Panels:
    """`count` panels of `width` rows or columns, then one of `rest` (0: none)."""

    width: int
    count: int
    rest: int

    @property
    def size(self) -> int:
        return self.width * self.count + self.rest


@dataclass(frozen=True, slots=True)
class Tiling:
    """rows x (vectors * lanes) accumulators stay in registers.

    `rows` and `columns` cut the result; a panel of columns is at most `vectors` vectors wide.
    """

    lanes: int
    vectors: int
    rows: Panels
    columns: Panels


def computed_in(result: ScalarType) -> ScalarType:
    """The type of products and sums: narrow float results are summed in f32 and rounded once."""
    if result in (F16, BF16):
        return F32
    return result if result.kind == "float" else I32


def depth_block(k: int) -> int:
    """How much of k is packed and multiplied at a time."""
    return min(k, MAX_DEPTH)


def powers_of_two(count: int, largest: int) -> list[int]:
    """`count` as a sum of powers of two not above `largest`, big ones first."""
    parts = []
    while count:
        part = min(largest, 1 << (count.bit_length() - 1))
        parts.append(part)
        count -= part
    return parts


def _cut(size: int, width: int) -> Panels:
    width = min(size, width)
    return Panels(width, size // width, size % width)


def tiling(target: TargetDescription, m: int, n: int, element: ScalarType) -> Tiling:
    """Tiles for an [m, n] result computed in `element`.

    Rows are spread evenly: 128 rows in panels of at most 14 are nine of 13 and one of 11.
    """
    lanes = min(target.lanes(element.bits), 1 << (n.bit_length() - 1))
    vectors = 2 if n >= 2 * lanes else 1
    # One register per vector of the right factor, one for a broadcast element.
    most = max(1, (target.vector_registers - vectors - 1) // vectors)
    panels = -(-m // min(most, 14))
    return Tiling(lanes, vectors, _cut(m, -(-m // panels)), _cut(n, lanes * vectors))
