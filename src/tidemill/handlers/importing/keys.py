"""Which row had a key first, over a file of any length, at flat memory.

The newest keys are a dict. Older ones are sealed into sorted runs in a temporary file, and a bitmap says of most keys
that no run has them: 32 MB for ten million rows, of which one in thirty is looked for in vain.

Keys are told apart by 64 bits of Python's own keyed hash, which no file can be made to collide with. Whether two keys
are really equal is seen when the rows are imported.
"""

import mmap
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence

RECENT_MAX = 1 << 17
BITS_FIRST, BITS_MAX = 1 << 23, 1 << 28
BITS_PER_KEY = 16


class Run:
    """Sealed keys, sorted, and the row of each."""

    def __init__(self, rows: dict[int, int]) -> None:
        hashes = array("q", sorted(rows))
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the run
        hashes.tofile(self._file)
        array("q", map(rows.__getitem__, hashes)).tofile(self._file)
        self._file.flush()
        self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        whole = memoryview(self._map).cast("q")
        self.hashes, self._rows = whole[: len(hashes)], whole[len(hashes) :]

    def find(self, key: int) -> int | None:
        at = bisect_left(self.hashes, key)
        return self._rows[at] if at < len(self.hashes) and self.hashes[at] == key else None

    def close(self) -> None:
        self.hashes.release()
        self._rows.release()
        self._map.close()
        self._file.close()


class Keys:
    """The keys of one file so far. ``latest``: the last row of a key is the one, else the first."""

    def __init__(self, *, latest: bool) -> None:
        self._latest = latest
        self._recent: dict[int, int] = {}
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
        if len(fresh) == len(hashes) and self._recent.keys().isdisjoint(fresh) and not self._is_sealed(hashes):
            self._recent.update(fresh)  # most chunks of most files
            repeats = []
        else:
            repeats = self._see_each(zip(rows, hashes, strict=True))
        if len(self._recent) >= RECENT_MAX:
            self._seal()
        return repeats

    def close(self) -> None:
        for run in self._runs:
            run.close()

    def _is_sealed(self, hashes: list[int]) -> bool:
        """Whether a run has one of these keys."""
        if not self._runs:
            return False
        bits, mask = self._bits, len(self._bits) * 8 - 1
        marked = [key for key in hashes if bits[(key & mask) >> 3] >> (key & 7) & 1]
        return any(self._find(key) is not None for key in marked)

    def _see_each(self, keys: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        recent, bits, mask, repeats = self._recent, self._bits, len(self._bits) * 8 - 1, []
        for seq, key in keys:
            other = recent.get(key)
            if other is None and bits[(at := key & mask) >> 3] >> (at & 7) & 1:
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
        self._runs.append(Run(self._recent))
        self._sealed += len(self._recent)
        if self._sealed * BITS_PER_KEY > len(self._bits) * 8 < BITS_MAX:
            self._bits = bytearray(min(len(self._bits) * 4, BITS_MAX // 8))
            for run in self._runs:
                _mark(self._bits, run.hashes)
        else:
            _mark(self._bits, self._recent)
        self._recent = {}


def _mark(bits: bytearray, keys: "Sequence[int] | memoryview[int] | dict[int, int]") -> None:
    mask = len(bits) * 8 - 1
    for key in keys:
        at = key & mask
        bits[at >> 3] |= 1 << (at & 7)
