"""Which row had a key first, over a file of any length, at flat memory.

The newest keys are a dict. Older ones are sealed into sorted runs in a temporary file, and three bits for each key in
a bitmap say of nearly all others that no run has them: at most 32 MB; of ten million keys, one in a thousand is looked
for in vain. What was looked at of a run is let go at once: the system has it in its cache, and we need not.

Keys are told apart by 64 bits of Python's own keyed hash, which no file can be made to collide with. Whether two keys
are really equal is seen when the rows are imported.
"""

import mmap
import tempfile
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

RECENT_MAX = 1 << 17
BITS_FIRST, BITS_MAX = 1 << 23, 1 << 28
BITS_PER_KEY = 16
WIDTH = 8  # bytes of a number
SECOND, THIRD = 28, 36  # where in a hash its other bits begin
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)


class Numbers:
    """Numbers in one temporary file, read where they lie: stretches of them, each from a new page on.

    One file and one map of it, however many stretches: a process has few descriptors, and each map takes one.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as we do
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"").cast("q")

    def add(self, numbers: Iterable[int]) -> slice:
        """Where they are from now on. No stretch may be in use: the map is made anew."""
        begin = self._file.seek(0, 2)
        begin = self._file.seek(begin + -begin % mmap.PAGESIZE)
        array("q", numbers).tofile(self._file)
        self._file.flush()
        self._unmap()
        self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._view = memoryview(self._map).cast("q")
        return slice(begin // WIDTH, len(self._view))

    def __getitem__(self, stretch: slice) -> "memoryview[int]":
        return self._view[stretch]

    def let_go(self, *stretches: slice | None) -> None:
        """Pages that were read count as ours until then."""
        for one in stretches:
            if one is not None and self._map is not None and _DONTNEED is not None:
                self._map.madvise(_DONTNEED, one.start * WIDTH, (one.stop - one.start) * WIDTH)

    def close(self) -> None:
        self._unmap()
        self._file.close()

    def _unmap(self) -> None:
        self._view.release()
        if self._map is not None:
            self._map.close()


class Run:
    """Sealed keys, sorted. Which row each had is put into the same order when somebody first asks: few files do."""

    def __init__(self, numbers: Numbers, rows: dict[int, int]) -> None:
        self._numbers = numbers
        self._sorted, self._keys, self._rows = map(numbers.add, (sorted(rows), rows, rows.values()))
        self._of_sorted: slice | None = None

    @property
    def hashes(self) -> "memoryview[int]":
        return self._numbers[self._sorted]

    def known(self, keys: Iterable[int]) -> set[int]:
        """Those of these keys that are here."""
        hashes = self.hashes
        length = len(hashes)
        found = {key for key in keys if (at := bisect_left(hashes, key)) < length and hashes[at] == key}
        self._numbers.let_go(self._sorted)
        return found

    def find(self, key: int) -> int | None:
        hashes = self.hashes
        at = bisect_left(hashes, key)
        if at == len(hashes) or hashes[at] != key:
            return None
        hashes.release()
        if self._of_sorted is None:
            self._of_sorted = self._numbers.add(self._rows_in_order())
            self.let_go()
        return self._numbers[self._of_sorted][at]

    def let_go(self) -> None:
        self._numbers.let_go(self._sorted, self._keys, self._rows, self._of_sorted)

    def _rows_in_order(self) -> list[int]:
        rows = dict(zip(self._numbers[self._keys], self._numbers[self._rows], strict=True))
        return [rows[key] for key in self.hashes]


class Keys:
    """The keys of one file so far. ``latest``: the last row of a key is the one, else the first."""

    def __init__(self, *, latest: bool) -> None:
        self._latest = latest
        self._recent: dict[int, int] = {}
        self._numbers = Numbers()
        self._runs: list[Run] = []
        self._bits, self._sealed = bytearray(BITS_FIRST // 8), 0

    def see(self, lo: int, keys: Sequence[Hashable]) -> list[tuple[int, int]]:
        """Keys of the rows from ``lo`` on, None for a row that has none: (who loses, to whom)."""
        rows = range(lo, lo + len(keys))
        if None in keys:
            rows = [seq for seq, key in zip(rows, keys, strict=True) if key is not None]  # type: ignore[assignment]
            keys = [key for key in keys if key is not None]
        hashes = list(map(hash, keys))
        fresh = dict(zip(hashes, rows, strict=True))
        known = (self._recent.keys() & fresh.keys()) | self._in_runs(hashes)
        if len(fresh) < len(hashes):
            known |= {key for key, count in Counter(hashes).items() if count > 1}
        repeats = []
        if known:
            repeats = self._see_each((seq, key) for seq, key in zip(rows, hashes, strict=True) if key in known)
            fresh = {key: seq for key, seq in fresh.items() if key not in known}
        self._recent.update(fresh)
        if len(self._recent) >= RECENT_MAX:
            self._seal()
        return repeats

    def close(self) -> None:
        self._numbers.close()

    def _in_runs(self, hashes: list[int]) -> set[int]:
        """Those of these keys that were sealed."""
        if not self._runs:
            return set()
        bits, mask = self._bits, len(self._bits) * 8 - 1
        marked = [
            key
            for key in hashes
            if bits[(key & mask) >> 3] >> (key & 7) & 1
            and bits[(key >> SECOND & mask) >> 3] >> (key >> SECOND & 7) & 1
            and bits[(key >> THIRD & mask) >> 3] >> (key >> THIRD & 7) & 1
        ]
        return set[int]().union(*(run.known(marked) for run in self._runs)) if marked else set()

    def _see_each(self, keys: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        recent, repeats = self._recent, []
        for seq, key in keys:
            other = recent.get(key)
            if other is None:
                other = self._find(key)
            if other is None:
                recent[key] = seq
            elif self._latest:
                repeats.append((other, seq))
                recent[key] = seq
            else:
                repeats.append((seq, other))
        return repeats

    def _find(self, key: int) -> int | None:
        """The newest run knows the last row of a key; of the first row there is only one."""
        for run in reversed(self._runs):
            found = run.find(key)
            if found is not None:
                return found
        return None

    def _seal(self) -> None:
        self._runs.append(Run(self._numbers, self._recent))
        self._sealed += len(self._recent)
        if self._sealed * BITS_PER_KEY > len(self._bits) * 8 < BITS_MAX:
            self._bits = bytearray(min(len(self._bits) * 4, BITS_MAX // 8))
            for run in self._runs:
                _mark(self._bits, run.hashes)
                run.let_go()
        else:
            _mark(self._bits, self._recent)
        self._recent = {}


def _mark(bits: bytearray, keys: "Sequence[int] | memoryview[int] | dict[int, int]") -> None:
    mask = len(bits) * 8 - 1
    for key in keys:
        at, second, third = key & mask, key >> SECOND & mask, key >> THIRD & mask
        bits[at >> 3] |= 1 << (at & 7)
        bits[second >> 3] |= 1 << (second & 7)
        bits[third >> 3] |= 1 << (third & 7)
