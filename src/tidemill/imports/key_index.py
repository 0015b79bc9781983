"""An index of the keys of a file, from key to row number, in constant memory for files of any length.

A key is stored as 64 bits of Python's keyed hash, so no file can be crafted to collide. The import handler compares the
keys themselves. The newest keys are in memory; older keys are in sorted runs in temporary files. A Bloom filter of six
to twelve bits per key, 16 MB at most, avoids searching the runs for nearly all new keys.
"""

import mmap
import os
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemill.core.errors import DiskFull

RUNS_PER_LEVEL_MAX = 16
MERGE_CHUNK_KEYS = 1 << 16  # keys in memory at a time during a merge
LOOKUP_CHUNK_KEYS = 64  # keys of one lookup
NO_ROW = -1
NUMBER_BYTES = 8
_MADV_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)

Int64Array: TypeAlias = NDArray[np.int64]
SortedRun: TypeAlias = tuple[Int64Array, Int64Array]
"""Sorted keys without repeats, and the row of each key."""


@contextmanager
def _convert_disk_errors() -> Iterator[None]:
    """Convert OSError to DiskFull: the input is not at fault."""
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "the temporary folder"
        raise DiskFull(f"Cannot write keys to {folder}: {error.strerror or error}") from error


class RunLevel:
    """Runs of similar length in one memory-mapped file.

    All runs share one map, because each map takes a file descriptor.
    """

    def __init__(self) -> None:
        with _convert_disk_errors():
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed by close()
        self._map: mmap.mmap | None = None
        self._run_offsets: list[tuple[int, int, int]] = []  # offset of the keys, offset of the rows, number of keys
        self._end = 0

    def __len__(self) -> int:
        return len(self._run_offsets)

    def append_run(self, parts: Iterable[SortedRun], room: int) -> None:
        """Append a run that comes in parts and has at most ``room`` keys."""
        keys_at, rows_at, length = self._end, self._end + room * NUMBER_BYTES, 0
        for run in parts:
            for begin, numbers in zip((keys_at, rows_at), run, strict=True):
                self._write(begin + length * NUMBER_BYTES, numbers)
            length += len(run[0])
        self._map = None
        self._run_offsets.append((keys_at, rows_at, length))
        self._end = rows_at + length * NUMBER_BYTES

    def _write(self, begin: int, numbers: Int64Array) -> None:
        remaining = numbers.data.cast("B")
        with _convert_disk_errors():
            while remaining:
                written = os.pwrite(self._file.fileno(), remaining, begin)
                begin, remaining = begin + written, remaining[written:]

    def get_mapped_runs(self) -> list[SortedRun]:
        """Return all runs, oldest first, as views of the mapped file."""
        if not self._run_offsets:
            return []
        with _convert_disk_errors():
            self._map = mapped = self._map or mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return [
            (np.frombuffer(mapped, np.int64, length, keys_at), np.frombuffer(mapped, np.int64, length, rows_at))
            for keys_at, rows_at, length in self._run_offsets
        ]

    def iter_merged_run(self) -> Iterator[SortedRun]:
        """Merge all runs into one and yield it in parts, as it may exceed the memory."""
        runs = self.get_mapped_runs()
        count = -(-sum(len(keys) for keys, _ in runs) // MERGE_CHUNK_KEYS)
        sample = runs[0][0]  # keys are hashes: they have the same distribution in all runs
        cuts = sample[np.arange(1, count) * len(sample) // count]
        edges = []
        for keys, _ in runs:
            edges.append([0, *np.searchsorted(keys, cuts).tolist(), len(keys)])
            self.release_mapped_pages()
        for part in range(count):
            yield merge_runs(
                [self._read_run_part(number, edge[part], edge[part + 1]) for number, edge in enumerate(edges)]
            )

    def iter_keys(self) -> Iterator[Int64Array]:
        """Yield the keys of all runs, in parts."""
        for keys_at, _, length in self._run_offsets:
            for begin in range(0, length, MERGE_CHUNK_KEYS):
                yield self._read_numbers(keys_at, begin, min(begin + MERGE_CHUNK_KEYS, length))

    def _read_run_part(self, number: int, begin: int, end: int) -> SortedRun:
        keys_at, rows_at, _ = self._run_offsets[number]
        return self._read_numbers(keys_at, begin, end), self._read_numbers(rows_at, begin, end)

    def _read_numbers(self, offset: int, begin: int, end: int) -> Int64Array:
        """Read numbers without the map: a page fault would load up to some hundreds of neighbouring pages."""
        return np.frombuffer(
            os.pread(self._file.fileno(), (end - begin) * NUMBER_BYTES, offset + begin * NUMBER_BYTES), np.int64
        )

    def release_mapped_pages(self) -> None:
        """Release the mapped pages from the memory of the process. They stay in the page cache."""
        if self._map is not None and _MADV_DONTNEED is not None:
            self._map.madvise(_MADV_DONTNEED)

    def clear(self) -> None:
        self._map, self._run_offsets, self._end = None, [], 0
        self._file.truncate(0)

    def close(self) -> None:
        self._map = None
        self._file.close()


class SortedRuns:
    """Levels of runs. The runs of a full level are merged into one run of the next level, which is older."""

    def __init__(self) -> None:
        self._levels = [RunLevel()]

    def add_run(self, run: SortedRun) -> None:
        parts: Iterable[SortedRun] = [run]
        room = len(run[0])
        for number in range(len(self._levels) + 1):
            if number == len(self._levels):
                self._levels.append(RunLevel())
            level = self._levels[number]
            level.append_run(parts, room)
            if number:
                self._levels[number - 1].clear()
            if len(level) < RUNS_PER_LEVEL_MAX:
                break
            parts, room = level.iter_merged_run(), sum(len(keys) for keys, _ in level.get_mapped_runs())

    def find_rows(self, keys: Int64Array) -> Int64Array:
        """Return the row of each key from the newest run that has it, NO_ROW if none has. ``keys`` are sorted."""
        found, remaining = np.full(len(keys), NO_ROW), np.arange(len(keys))
        for level in self._levels:
            for run in reversed(level.get_mapped_runs()):
                for begin in range(0, len(remaining), LOOKUP_CHUNK_KEYS):
                    chunk = remaining[begin : begin + LOOKUP_CHUNK_KEYS]
                    found[chunk] = find_rows_in_run(run, keys[chunk])
                    level.release_mapped_pages()
                remaining = remaining[found[remaining] == NO_ROW]
        return found

    def iter_keys(self) -> Iterator[Int64Array]:
        """Yield all keys, in parts."""
        for level in self._levels:
            yield from level.iter_keys()

    def close(self) -> None:
        for level in self._levels:
            level.close()


def sort_by_key(keys: Int64Array, rows: Int64Array) -> SortedRun:
    """Sort by key. Rows with the same key keep their order."""
    order = np.argsort(keys, kind="stable")
    return keys[order], rows[order]


def mark_group_starts(keys: Int64Array) -> NDArray[np.bool_]:
    """Mark the positions where the key differs from the one before."""
    found = np.ones(len(keys), np.bool_)
    found[1:] = keys[1:] != keys[:-1]
    return found


def find_rows_in_run(run: SortedRun, keys: Int64Array) -> Int64Array:
    """Return the row of each key in a run, NO_ROW if the run does not have it."""
    known, rows = run
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[at] == keys, rows[at], NO_ROW)


def merge_runs(runs: Sequence[SortedRun]) -> SortedRun:
    """Merge runs, given oldest first. If several runs have a key, the newest wins."""
    keys, rows = sort_by_key(*(np.concatenate(part) for part in zip(*reversed(runs), strict=True)))
    is_newest = mark_group_starts(keys)
    return keys[is_newest], rows[is_newest]


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
