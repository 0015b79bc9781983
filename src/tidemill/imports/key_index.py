"""Which row had a key first, over a file of any length, at flat memory.

A key is a number here: 64 bits of Python's own keyed hash, which no file can be made to collide with. Whether two keys
are really equal is seen when the rows are imported. Keys are kept sorted, their rows beside them: the newest as they
came, older ones in runs in temporary files. A bitmap, six to twelve bits for a key and 16 MB at most, says of nearly
all others that no run has them.
"""

import mmap
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tidemill.imports.sorted_runs import (
    NO_ROW,
    Int64Array,
    SortedRun,
    SortedRuns,
    find_rows_in_run,
    mark_group_starts,
    merge_runs,
    sort_by_key,
)

RECENT_KEYS_MAX, RECENT_CHUNKS_MAX = 1 << 16, 16  # keys that are not sealed yet, and the chunks they came in
BLOOM_BITS_INITIAL, BLOOM_BITS_MAX = 1 << 21, 1 << 27
BLOOM_BITS_PER_KEY = 6
BLOOM_HASH_SHIFTS = (0, 28, 36)  # where in a hash its bits begin


class BloomFilter:
    """What may have been seen; what is not marked has not."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        # Not of the allocator's: once it is given back that much, it keeps as much of what comes after.
        self._bytes = np.frombuffer(mmap.mmap(-1, max(1, bits // 8)), np.uint8)

    def add(self, keys: Int64Array) -> None:
        for byte, bit in self._iter_bit_positions(keys):
            np.bitwise_or.at(self._bytes, byte, bit)

    def may_contain(self, keys: Int64Array) -> NDArray[np.bool_]:
        found = np.ones(len(keys), np.bool_)
        for byte, bit in self._iter_bit_positions(keys):
            found &= (self._bytes[byte] & bit) != 0
        return found

    def _iter_bit_positions(self, keys: Int64Array) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint8]]]:
        for shift in BLOOM_HASH_SHIFTS:
            place = keys.view(np.uint64) >> np.uint64(shift) & np.uint64(self.bits - 1)
            yield place >> np.uint64(3), np.uint8(1) << (place & np.uint64(7)).astype(np.uint8)


class KeyIndex:
    """The keys of one file so far. ``latest``: the last row of a key is the one, else the first."""

    def __init__(self, *, keep_latest: bool) -> None:
        self._keep_latest = keep_latest
        self._recent: list[SortedRun] = []
        self._runs = SortedRuns()
        self._bitmap, self._count = BloomFilter(BLOOM_BITS_INITIAL), 0

    def add_keys_and_find_repeats(self, lo: int, keys: Sequence[Hashable]) -> list[tuple[int, int]]:
        """Keys of the rows from ``lo`` on, None for a row that has none: (who loses, to whom)."""
        hashes, rows = _hash_and_sort(lo, keys)
        if not len(rows):
            return []
        is_first = mark_group_starts(hashes)
        firsts, group = np.flatnonzero(is_first), np.cumsum(is_first) - 1
        earlier = self._find_rows(hashes[firsts])
        is_new = earlier == NO_ROW
        kept = np.append(firsts[1:], len(rows)) - 1 if self._keep_latest else firsts
        self._store_keys(hashes[firsts], rows[kept], is_new)
        repeats = ~(is_first & is_new[group])
        if not repeats.any():
            return []
        if self._keep_latest:  # loses the row before it
            pairs = np.where(is_first, earlier[group], np.roll(rows, 1)), rows
        else:
            pairs = rows, np.where(is_new, rows[firsts], earlier)[group]
        order = np.argsort(rows[repeats])
        losers, winners = (side[repeats][order].tolist() for side in pairs)
        return list(zip(losers, winners, strict=True))

    def close(self) -> None:
        self._runs.close()

    def _find_rows(self, keys: Int64Array) -> Int64Array:
        """The rows of keys that were seen before, which are in order."""
        found = np.full(len(keys), NO_ROW)
        wanted = np.flatnonzero(self._bitmap.may_contain(keys))
        for run in reversed(self._recent):
            found[wanted] = find_rows_in_run(run, keys[wanted])
            wanted = wanted[found[wanted] == NO_ROW]
        found[wanted] = self._runs.find_rows(keys[wanted])
        return found

    def _store_keys(self, keys: Int64Array, rows: Int64Array, is_new: NDArray[np.bool_]) -> None:
        """What is new; and where the last row of a key is the one, that too."""
        self._bitmap.add(keys[is_new])
        self._count += int(is_new.sum())
        if not self._keep_latest:
            keys, rows = keys[is_new], rows[is_new]
        if len(keys):
            self._recent.append((keys, rows))
        if len(self._recent) > RECENT_CHUNKS_MAX:  # of small chunks, or of few keys
            self._recent = [merge_runs(self._recent)]
        if sum(len(keys) for keys, _ in self._recent) >= RECENT_KEYS_MAX:
            self._spill_recent_keys()

    def _spill_recent_keys(self) -> None:
        self._runs.add_run(merge_runs(self._recent))
        self._recent = []
        if self._count * BLOOM_BITS_PER_KEY > self._bitmap.bits < BLOOM_BITS_MAX:
            self._bitmap = BloomFilter(self._bitmap.bits * 2)
            for keys in self._runs.iter_keys():
                self._bitmap.add(keys)


def _hash_and_sort(lo: int, keys: Sequence[Hashable]) -> SortedRun:
    """Keys in order, each as often as it is there, and their rows."""
    rows = np.arange(lo, lo + len(keys))
    if None in keys:
        rows = rows[[key is not None for key in keys]]
        keys = [key for key in keys if key is not None]
    return sort_by_key(np.fromiter(map(hash, keys), np.int64, len(keys)), rows)
