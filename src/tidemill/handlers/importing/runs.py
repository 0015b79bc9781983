"""Sorted runs of keys in temporary files. Sixteen of a length become one: of 100 million keys there are 40 at most.

Unmerged, of 131,072 keys each, ten million were 76 runs.
"""

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemill.domain.errors import NoRoom

RUNS_MAX = 16  # of one length
PART = 1 << 16  # keys that are in memory at a time
ASKED = 64  # keys that are looked for at a time
NOBODY = -1
WIDTH = 8  # bytes of a number
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)

Numbers: TypeAlias = NDArray[np.int64]
Run: TypeAlias = tuple[Numbers, Numbers]
"""Keys, each once and in order, and the row of each."""


@contextmanager
def _keeping() -> Iterator[None]:
    """What a disk has against it is no fault of what was given."""
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "a temporary folder"
        raise NoRoom(f"keys cannot be kept in {folder}: {error.strerror or error}") from error


class Level:
    """Runs of about one length in a file, read where they lie.

    One map of the file, however many runs: a process has few descriptors, and each map takes one.
    """

    def __init__(self) -> None:
        with _keeping():
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  it lives as long as we do
        self._map: mmap.mmap | None = None
        self._places: list[tuple[int, int, int]] = []  # where its keys begin, where its rows begin, how many
        self._end = 0

    def __len__(self) -> int:
        return len(self._places)

    def add(self, parts: Iterable[Run], room: int) -> None:
        """A run that comes in parts and has no more than ``room`` keys."""
        keys_at, rows_at, length = self._end, self._end + room * WIDTH, 0
        for run in parts:
            for begin, numbers in zip((keys_at, rows_at), run, strict=True):
                self._write(begin + length * WIDTH, numbers)
            length += len(run[0])
        self._map = None
        self._places.append((keys_at, rows_at, length))
        self._end = rows_at + length * WIDTH

    def _write(self, begin: int, numbers: Numbers) -> None:
        left = numbers.data.cast("B")
        with _keeping():
            while left:
                written = os.pwrite(self._file.fileno(), left, begin)
                begin, left = begin + written, left[written:]

    def runs(self) -> list[Run]:
        """Oldest first."""
        if not self._places:
            return []
        with _keeping():
            self._map = seen = self._map or mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return [
            (np.frombuffer(seen, np.int64, length, keys_at), np.frombuffer(seen, np.int64, length, rows_at))
            for keys_at, rows_at, length in self._places
        ]

    def merged(self) -> Iterator[Run]:
        """All of its runs as one, in parts: the whole may be more than memory holds."""
        runs = self.runs()
        count = -(-sum(len(keys) for keys, _ in runs) // PART)
        sample = runs[0][0]  # keys are spread alike in all runs
        cuts = sample[np.arange(1, count) * len(sample) // count]
        edges = []
        for keys, _ in runs:
            edges.append([0, *np.searchsorted(keys, cuts).tolist(), len(keys)])
            self.let_go()
        for part in range(count):
            yield merged([self._part(number, edge[part], edge[part + 1]) for number, edge in enumerate(edges)])

    def keys(self) -> Iterator[Numbers]:
        """All of them, in parts."""
        for keys_at, _, length in self._places:
            for begin in range(0, length, PART):
                yield self._numbers(keys_at, begin, min(begin + PART, length))

    def _part(self, number: int, begin: int, end: int) -> Run:
        keys_at, rows_at, _ = self._places[number]
        return self._numbers(keys_at, begin, end), self._numbers(rows_at, begin, end)

    def _numbers(self, place: int, begin: int, end: int) -> Numbers:
        """Read, not mapped: with a page that is touched come up to some hundreds of its neighbours."""
        return np.frombuffer(os.pread(self._file.fileno(), (end - begin) * WIDTH, place + begin * WIDTH), np.int64)

    def let_go(self) -> None:
        """What was looked at is no memory of ours any more: the system has it cached."""
        if self._map is not None and _DONTNEED is not None:
            self._map.madvise(_DONTNEED)

    def empty(self) -> None:
        self._map, self._places, self._end = None, [], 0
        self._file.truncate(0)

    def close(self) -> None:
        self._map = None
        self._file.close()


class Runs:
    """Levels of runs: what fills one goes as a single run to the next, which is older and longer."""

    def __init__(self) -> None:
        self._levels = [Level()]

    def add(self, run: Run) -> None:
        parts: Iterable[Run] = [run]
        room = len(run[0])
        for number in range(len(self._levels) + 1):
            if number == len(self._levels):
                self._levels.append(Level())
            level = self._levels[number]
            level.add(parts, room)
            if number:
                self._levels[number - 1].empty()
            if len(level) < RUNS_MAX:
                break
            parts, room = level.merged(), sum(len(keys) for keys, _ in level.runs())

    def find(self, keys: Numbers) -> Numbers:
        """The rows of these keys, which are in order: as the newest run that has a key knows it."""
        found, left = np.full(len(keys), NOBODY), np.arange(len(keys))
        for level in self._levels:
            for run in reversed(level.runs()):
                for begin in range(0, len(left), ASKED):
                    asked = left[begin : begin + ASKED]
                    found[asked] = look_up(run, keys[asked])
                    level.let_go()
                left = left[found[left] == NOBODY]
        return found

    def all_keys(self) -> Iterator[Numbers]:
        """In parts."""
        for level in self._levels:
            yield from level.keys()

    def close(self) -> None:
        for level in self._levels:
            level.close()


def in_order(keys: Numbers, rows: Numbers) -> Run:
    """By key; the rows of one key stay as they were."""
    order = np.argsort(keys, kind="stable")
    return keys[order], rows[order]


def begins(keys: Numbers) -> NDArray[np.bool_]:
    """Where another key begins."""
    found = np.ones(len(keys), np.bool_)
    found[1:] = keys[1:] != keys[:-1]
    return found


def look_up(run: Run, keys: Numbers) -> Numbers:
    """The rows of these keys in a run."""
    known, rows = run
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[at] == keys, rows[at], NOBODY)


def merged(runs: Sequence[Run]) -> Run:
    """One run of several, oldest first: of a key that is in more than one, the newest counts."""
    keys, rows = in_order(*(np.concatenate(part) for part in zip(*reversed(runs), strict=True)))
    is_newest = begins(keys)
    return keys[is_newest], rows[is_newest]
