"""An index of the keys of a file, from key to row number, in constant memory for files of any length.

A key is stored as 64 bits of Python's keyed hash, so no file can be crafted to collide. The import handler compares the
keys themselves. The newest keys are in memory; older keys are in sorted runs in temporary files. A Bloom filter of six
to twelve bits per key, 16 MB at most, avoids searching the runs for nearly all new keys.
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

RECENT_KEYS_MAX, RECENT_CHUNKS_MAX = 1 << 16, 16  # keys in memory, and the chunks that they are in
BLOOM_BITS_INITIAL, BLOOM_BITS_MAX = 1 << 21, 1 << 27
BLOOM_BITS_PER_KEY = 6
BLOOM_HASH_SHIFTS = (0, 28, 36)  # which bits of the hash select a bit of the filter


class BloomFilter:
    """A Bloom filter of keys: a key that it does not contain was never added."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        # mmap, not malloc: after a free of that size, glibc keeps as much of later memory instead of returning it.
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
            bit = keys.view(np.uint64) >> np.uint64(shift) & np.uint64(self.bits - 1)
            yield bit >> np.uint64(3), np.uint8(1) << (bit & np.uint64(7)).astype(np.uint8)


class KeyIndex:
    """The keys of one file so far. ``keep_latest``: the last row of a key wins, else the first."""

    def __init__(self, *, keep_latest: bool) -> None:
        self._keep_latest = keep_latest
        self._recent: list[SortedRun] = []
        self._runs = SortedRuns()
        self._bitmap, self._count = BloomFilter(BLOOM_BITS_INITIAL), 0

    def add_keys_and_find_repeats(self, lo: int, keys: Sequence[Hashable]) -> list[tuple[int, int]]:
        """Add the keys of the rows from ``lo`` on, None for no key; return pairs of a losing and a winning row."""
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
        if self._keep_latest:  # the earlier row loses
            pairs = np.where(is_first, earlier[group], np.roll(rows, 1)), rows
        else:
            pairs = rows, np.where(is_new, rows[firsts], earlier)[group]
        order = np.argsort(rows[repeats])
        losers, winners = (side[repeats][order].tolist() for side in pairs)
        return list(zip(losers, winners, strict=True))

    def close(self) -> None:
        self._runs.close()

    def _find_rows(self, keys: Int64Array) -> Int64Array:
        """Return the row of each key, NO_ROW for keys not seen before. ``keys`` are sorted."""
        found = np.full(len(keys), NO_ROW)
        wanted = np.flatnonzero(self._bitmap.may_contain(keys))
        for run in reversed(self._recent):
            found[wanted] = find_rows_in_run(run, keys[wanted])
            wanted = wanted[found[wanted] == NO_ROW]
        found[wanted] = self._runs.find_rows(keys[wanted])
        return found

    def _store_keys(self, keys: Int64Array, rows: Int64Array, is_new: NDArray[np.bool_]) -> None:
        """Store new keys; with ``keep_latest`` also the new rows of known keys."""
        self._bitmap.add(keys[is_new])
        self._count += int(is_new.sum())
        if not self._keep_latest:
            keys, rows = keys[is_new], rows[is_new]
        if len(keys):
            self._recent.append((keys, rows))
        if len(self._recent) > RECENT_CHUNKS_MAX:  # chunks are small, or have few keys
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
    """Return the sorted hashes of the keys, repeats included, and their rows."""
    rows = np.arange(lo, lo + len(keys))
    if None in keys:
        rows = rows[[key is not None for key in keys]]
        keys = [key for key in keys if key is not None]
    return sort_by_key(np.fromiter(map(hash, keys), np.int64, len(keys)), rows)
