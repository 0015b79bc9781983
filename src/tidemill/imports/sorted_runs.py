"""Sorted runs of keys in temporary files.

Sixteen runs of one length are merged into one: 100 million keys have at most 40 runs. Without merging, ten million keys
had 76.
"""

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemill.core.errors import DiskFull

RUNS_PER_LEVEL_MAX = 16  # of one length
MERGE_CHUNK_KEYS = 1 << 16  # keys that are in memory at a time
LOOKUP_CHUNK_KEYS = 64  # keys that are looked for at a time
NO_ROW = -1
NUMBER_BYTES = 8  # bytes of a number
_MADV_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)

Int64Array: TypeAlias = NDArray[np.int64]
SortedRun: TypeAlias = tuple[Int64Array, Int64Array]
"""Keys, each once and in order, and the row of each."""


@contextmanager
def _convert_disk_errors() -> Iterator[None]:
    """What a disk has against it is no fault of what was given."""
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "a temporary folder"
        raise DiskFull(f"keys cannot be kept in {folder}: {error.strerror or error}") from error


class RunLevel:
    """Runs of about one length in a file, read where they lie.

    One map of the file, however many runs: a process has few descriptors, and each map takes one.
    """

    def __init__(self) -> None:
        with _convert_disk_errors():
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  it lives as long as we do
        self._map: mmap.mmap | None = None
        self._run_offsets: list[tuple[int, int, int]] = []  # where its keys begin, where its rows begin, how many
        self._end = 0

    def __len__(self) -> int:
        return len(self._run_offsets)

    def append_run(self, parts: Iterable[SortedRun], room: int) -> None:
        """A run that comes in parts and has no more than ``room`` keys."""
        keys_at, rows_at, length = self._end, self._end + room * NUMBER_BYTES, 0
        for run in parts:
            for begin, numbers in zip((keys_at, rows_at), run, strict=True):
                self._write(begin + length * NUMBER_BYTES, numbers)
            length += len(run[0])
        self._map = None
        self._run_offsets.append((keys_at, rows_at, length))
        self._end = rows_at + length * NUMBER_BYTES

    def _write(self, begin: int, numbers: Int64Array) -> None:
        left = numbers.data.cast("B")
        with _convert_disk_errors():
            while left:
                written = os.pwrite(self._file.fileno(), left, begin)
                begin, left = begin + written, left[written:]

    def map_runs(self) -> list[SortedRun]:
        """Oldest first."""
        if not self._run_offsets:
            return []
        with _convert_disk_errors():
            self._map = seen = self._map or mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return [
            (np.frombuffer(seen, np.int64, length, keys_at), np.frombuffer(seen, np.int64, length, rows_at))
            for keys_at, rows_at, length in self._run_offsets
        ]

    def iter_merged(self) -> Iterator[SortedRun]:
        """All of its runs as one, in parts: the whole may be more than memory holds."""
        runs = self.map_runs()
        count = -(-sum(len(keys) for keys, _ in runs) // MERGE_CHUNK_KEYS)
        sample = runs[0][0]  # keys are spread alike in all runs
        cuts = sample[np.arange(1, count) * len(sample) // count]
        edges = []
        for keys, _ in runs:
            edges.append([0, *np.searchsorted(keys, cuts).tolist(), len(keys)])
            self.release_pages()
        for part in range(count):
            yield merge_runs(
                [self._read_run_part(number, edge[part], edge[part + 1]) for number, edge in enumerate(edges)]
            )

    def iter_keys(self) -> Iterator[Int64Array]:
        """All of them, in parts."""
        for keys_at, _, length in self._run_offsets:
            for begin in range(0, length, MERGE_CHUNK_KEYS):
                yield self._read_numbers(keys_at, begin, min(begin + MERGE_CHUNK_KEYS, length))

    def _read_run_part(self, number: int, begin: int, end: int) -> SortedRun:
        keys_at, rows_at, _ = self._run_offsets[number]
        return self._read_numbers(keys_at, begin, end), self._read_numbers(rows_at, begin, end)

    def _read_numbers(self, offset: int, begin: int, end: int) -> Int64Array:
        """Read, not mapped: with a page that is touched come up to some hundreds of its neighbours."""
        return np.frombuffer(
            os.pread(self._file.fileno(), (end - begin) * NUMBER_BYTES, offset + begin * NUMBER_BYTES), np.int64
        )

    def release_pages(self) -> None:
        """What was looked at is no memory of ours any more: the system has it cached."""
        if self._map is not None and _MADV_DONTNEED is not None:
            self._map.madvise(_MADV_DONTNEED)

    def clear(self) -> None:
        self._map, self._run_offsets, self._end = None, [], 0
        self._file.truncate(0)

    def close(self) -> None:
        self._map = None
        self._file.close()


class SortedRuns:
    """Levels of runs: what fills one goes as a single run to the next, which is older and longer."""

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
            parts, room = level.iter_merged(), sum(len(keys) for keys, _ in level.map_runs())

    def find_rows(self, keys: Int64Array) -> Int64Array:
        """The rows of these keys, which are in order: as the newest run that has a key knows it."""
        found, left = np.full(len(keys), NO_ROW), np.arange(len(keys))
        for level in self._levels:
            for run in reversed(level.map_runs()):
                for begin in range(0, len(left), LOOKUP_CHUNK_KEYS):
                    asked = left[begin : begin + LOOKUP_CHUNK_KEYS]
                    found[asked] = find_rows_in_run(run, keys[asked])
                    level.release_pages()
                left = left[found[left] == NO_ROW]
        return found

    def iter_keys(self) -> Iterator[Int64Array]:
        """In parts."""
        for level in self._levels:
            yield from level.iter_keys()

    def close(self) -> None:
        for level in self._levels:
            level.close()


def sort_by_key(keys: Int64Array, rows: Int64Array) -> SortedRun:
    """By key; the rows of one key stay as they were."""
    order = np.argsort(keys, kind="stable")
    return keys[order], rows[order]


def mark_group_starts(keys: Int64Array) -> NDArray[np.bool_]:
    """Where another key begins."""
    found = np.ones(len(keys), np.bool_)
    found[1:] = keys[1:] != keys[:-1]
    return found


def find_rows_in_run(run: SortedRun, keys: Int64Array) -> Int64Array:
    """The rows of these keys in a run."""
    known, rows = run
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[at] == keys, rows[at], NO_ROW)


def merge_runs(runs: Sequence[SortedRun]) -> SortedRun:
    """One run of several, oldest first: of a key that is in more than one, the newest counts."""
    keys, rows = sort_by_key(*(np.concatenate(part) for part in zip(*reversed(runs), strict=True)))
    is_newest = mark_group_starts(keys)
    return keys[is_newest], rows[is_newest]
