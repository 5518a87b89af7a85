"""Packed panels kept in scratch for the next product of the same call of a kernel.

    header   count of valid entries, entry to be replaced next, entry used last
    keys     per entry: address, strides and extents of the block that was packed
    data     per entry: the packed block

Consecutive programs of a matrix product share a panel of one factor and come back to those of
the other; looking a block up costs nanoseconds, packing it microseconds. The search starts after
the entry used last, where a loop over k finds its next block at once. Entries are replaced in
turn. The header must be reset at the start of each call: memory may change between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from isthmus.ir.core import Operation, Region, Value
from isthmus.ir.types import I1, I64, PointerType

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription
    from isthmus.ir.builder import Builder
    from isthmus.lowering.nest.dot_pack import Source

__all__ = ["PanelCache", "cache_entries"]

HEADER_WORDS = 8
KEY_WORDS = 8
MAX_ENTRIES = 256


def cache_entries(target: TargetDescription, block_bytes: int) -> int:
    """How many packed blocks are kept: a quarter of the last cache's worth, 256 at most."""
    budget = max(cache.size_bytes for cache in target.caches) // 4 if target.caches else 1 << 20
    return max(1, min(MAX_ENTRIES, budget // block_bytes))


class PanelCache:
    """Emits look-ups in one cache of `entries` blocks at `pointer` (ptr<i8>)."""

    def __init__(self, b: Builder, pointer: Value, entries: int, block_bytes: int) -> None:
        self.b = b
        self.entries = entries
        self.block_bytes = block_bytes
        self.pointer = pointer
        self.words = b.emit("ptr.cast", pointer, type=PointerType(I64))

    @staticmethod
    def size_bytes(entries: int, block_bytes: int) -> int:
        return 8 * (HEADER_WORDS + KEY_WORDS * entries) + entries * block_bytes

    def _word(self, position: Value | int) -> Value:
        b = self.b
        return b.emit(
            "ptr.add", self.words, b.i64(position) if isinstance(position, int) else position
        )

    def reset(self) -> None:
        b = self.b
        for position in range(3):
            b.create("nest.store", b.i64(0), self._word(position))

    def _key(self, source: Source, depth: int) -> list[Value]:
        b = self.b
        words = [b.emit("ptr.cast", source.pointer, type=I64), b.i64(depth)]
        parts = (
            source.outer_stride, source.inner_stride, source.outer_limit, source.inner_limit,
        )  # fmt: skip
        return words + [part for part in parts if isinstance(part, Value)]

    def _key_at(self, entry: Value) -> Value:
        b = self.b
        offset = b.emit("arith.muli", entry, b.i64(KEY_WORDS))
        return self._word(b.emit("arith.addi", offset, b.i64(HEADER_WORDS)))

    def find_or_pack(
        self, source: Source, depth: int, pointer: PointerType, pack: Callable[[Value], None]
    ) -> Value:
        """Where the packed block of `source` lies, after packing it if it was not there."""
        b = self.b
        key = self._key(source, depth)
        count = b.emit("nest.load", self._word(0), type=I64)
        last = b.emit("nest.load", self._word(2), type=I64)
        search = self._search(key, count, b.emit("arith.addi", last, b.i64(1)))
        tried, entry = search.results
        found = b.emit("arith.cmpi", tried, count, predicate="slt")
        branch = b.if_else(found, [I64])
        with b.at(branch.regions[0]):
            b.create("scf.yield", entry)
        with b.at(branch.regions[1]):
            b.create("scf.yield", self._insert(key, count, pointer, pack))
        chosen = branch.result
        b.create("nest.store", chosen, self._word(2))
        return self._data(chosen, pointer)

    def _data(self, entry: Value, pointer: PointerType) -> Value:
        b = self.b
        offset = b.emit("arith.muli", entry, b.i64(self.block_bytes))
        first = 8 * (HEADER_WORDS + KEY_WORDS * self.entries)
        place = b.emit("ptr.add", self.pointer, b.emit("arith.addi", offset, b.i64(first)))
        return b.emit("ptr.cast", place, type=pointer)

    def _search(self, key: list[Value], count: Value, start: Value) -> Operation:
        """A loop over the valid entries from `start` on: (entries tried, entry)."""
        b = self.b
        first = self._wrapped(start, count)
        test, body = Region([I64, I64]), Region([I64, I64])
        with b.at(test):
            tried, entry = test.args
            going = b.emit("arith.cmpi", tried, count, predicate="slt")
            place = self._key_at(entry)
            differs = b.constant(0, I1)
            for position, word in enumerate(key):
                stored = b.emit("nest.load", b.emit("ptr.add", place, b.i64(position)), type=I64)
                other = b.emit("arith.cmpi", stored, word, predicate="ne")
                differs = b.emit("arith.ori", differs, other)
            b.create("scf.condition", b.emit("arith.andi", going, differs), tried, entry)
        with b.at(body):
            tried, entry = body.args
            b.create(
                "scf.yield",
                b.emit("arith.addi", tried, b.i64(1)),
                self._wrapped(b.emit("arith.addi", entry, b.i64(1)), count),
            )
        return b.create("scf.while", b.i64(0), first, type=[I64, I64], regions=[test, body])

    def _wrapped(self, entry: Value, count: Value) -> Value:
        b = self.b
        inside = b.emit("arith.cmpi", entry, count, predicate="slt")
        return b.emit("arith.select", inside, entry, b.i64(0))

    def _insert(
        self, key: list[Value], count: Value, pointer: PointerType, pack: Callable[[Value], None]
    ) -> Value:
        b = self.b
        room = b.emit("arith.cmpi", count, b.i64(self.entries), predicate="slt")
        victim = b.emit("nest.load", self._word(1), type=I64)
        entry = b.emit("arith.select", room, count, victim)
        following = b.emit("arith.addi", victim, b.i64(1))
        following = self._wrapped(following, b.i64(self.entries))
        following = b.emit("arith.select", room, victim, following)
        b.create("nest.store", following, self._word(1))
        grown = b.emit("arith.addi", count, b.i64(1))
        grown = b.emit("arith.minsi", grown, b.i64(self.entries))
        b.create("nest.store", grown, self._word(0))
        place = self._key_at(entry)
        for position, word in enumerate(key):
            b.create("nest.store", word, b.emit("ptr.add", place, b.i64(position)))
        pack(self._data(entry, pointer))
        return entry
