"""What a child process has in hand, in memory that its parent still has when the child is dead.

One page per lane. A page names the lease, the items that were started, and the verdicts that are not flushed
yet: enough for the parent to save what was finished, and to know whom a death makes suspect.

Verdicts are kept in two areas, each with the number of the flush it belongs to. While one is being flushed the
other fills; a flush that committed is forgotten by one write (used = 0). Whatever the moment of death, an area
is either empty or has exactly the verdicts of its flush, and the fence tells whether that flush arrived.
"""

import mmap
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from uuid import UUID

import msgspec

from tidemill.domain.crash import InHand
from tidemill.domain.decide import Verdict
from tidemill.domain.handler import MAX_CONCURRENCY
from tidemill.engine.note import NOTE_BYTES, Note

WORD = 8
# words of the book: pulse, counters, and how it stands with slices
PULSE, SETTLED, FLUSHES, STALE, RETRIED, FAILED, READY, SLICES = range(8)
BOOK_WORDS = 16
# words of a page
LEASE_HI, LEASE_LO, TIMEOUT_MS, WHOLE, WHOLE_STARTED, INGEST, FLUSH_A, USED_A, FLUSH_B, USED_B = range(10)
SLOTS = 16
SLOT_WORDS = 3  # seq + 1 (0: free), started, attempt
AREA_BYTES = 2 * 1024 * 1024
PAGE_WORDS = SLOTS + MAX_CONCURRENCY * SLOT_WORDS
PAGE_BYTES = PAGE_WORDS * WORD + 2 * AREA_BYTES
_MASK = (1 << 63) - 1

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Verdict).decode


class Page:
    """One lane's page."""

    def __init__(self, memory: memoryview) -> None:
        self._words = memory[: PAGE_WORDS * WORD].cast("q")
        start = PAGE_WORDS * WORD
        self._areas = (memory[start : start + AREA_BYTES], memory[start + AREA_BYTES : start + 2 * AREA_BYTES])
        self._filling = 0

    # What the child writes.

    def begin(self, lease_id: UUID, *, ingest: bool = False) -> None:
        """Before the claim is sent: a claim that commits is found by its lease."""
        words = self._words
        words[USED_A] = words[USED_B] = words[WHOLE] = 0
        words[SLOTS:PAGE_WORDS] = _NO_SLOTS
        words[FLUSH_A], words[FLUSH_B] = 0, 1
        self._filling = 0
        words[INGEST] = int(ingest)
        words[LEASE_HI], words[LEASE_LO] = _split(lease_id)

    def set_timeout(self, seconds: float | None) -> None:
        self._words[TIMEOUT_MS] = 0 if seconds is None else max(1, int(seconds * 1000))

    def end(self) -> None:
        """Nothing in hand any more."""
        self._words[LEASE_HI] = self._words[LEASE_LO] = 0

    def start(self, slot: int, seq: int, attempt: int) -> None:
        at = SLOTS + slot * SLOT_WORDS
        words = self._words
        words[at + 1] = time.monotonic_ns()
        words[at + 2] = attempt
        words[at] = seq + 1

    def credit(self, slot: int, seconds: float) -> None:
        """An item began that much later, as far as its time limit goes."""
        self._words[SLOTS + slot * SLOT_WORDS + 1] += int(seconds * 1e9)

    def free(self, slot: int) -> None:
        self._words[SLOTS + slot * SLOT_WORDS] = 0

    def start_whole(self, count: int) -> None:
        self._words[WHOLE_STARTED] = time.monotonic_ns()
        self._words[WHOLE] = count

    def answered(self) -> None:
        """The set-based handler has answered: what follows is the database's time, not its own."""
        self._words[WHOLE_STARTED] = 0

    def item_answered(self, slot: int) -> None:
        """The same for one item."""
        self._words[SLOTS + slot * SLOT_WORDS + 1] = 0

    def free_whole(self) -> None:
        self._words[WHOLE] = 0

    def record(self, verdict: Verdict) -> bool:
        """Keep a verdict until it is flushed; False when there is no room for it now."""
        data = _encode(verdict)
        used_word = USED_A + 2 * self._filling
        used = self._words[used_word]
        end = used + 4 + len(data)
        if end > AREA_BYTES:
            return False
        area = self._areas[self._filling]
        area[used : used + 4] = len(data).to_bytes(4, "little")
        area[used + 4 : end] = data
        self._words[used_word] = end
        return True

    def turn_over(self, flush_no: int) -> int:
        """The filled area is about to be flushed as ``flush_no``; the other one fills from here on."""
        sealed = self._filling
        other = 1 - sealed
        self._words[FLUSH_A + 2 * sealed] = flush_no
        self._words[FLUSH_A + 2 * other] = flush_no + 1
        self._filling = other
        return sealed

    def restamp(self, flush_no: int) -> None:
        """The area that fills belongs to this flush: the one before was written in parts."""
        self._words[FLUSH_A + 2 * self._filling] = flush_no

    def forget(self, area: int) -> None:
        """Its flush is durable."""
        self._words[USED_A + 2 * area] = 0

    # What the parent reads.

    @property
    def lease_id(self) -> UUID | None:
        hi, lo = self._words[LEASE_HI], self._words[LEASE_LO]
        return UUID(int=((hi & 0xFFFFFFFFFFFFFFFF) << 64) | (lo & 0xFFFFFFFFFFFFFFFF)) if hi or lo else None

    @property
    def is_ingest(self) -> bool:
        return bool(self._words[INGEST])

    @property
    def timeout(self) -> float | None:
        return self._words[TIMEOUT_MS] / 1000 or None

    @property
    def whole(self) -> int:
        """How many items a set-based handler has in hand, all of them at once."""
        return self._words[WHOLE]

    @property
    def items_in_hand(self) -> int:
        return len(self.in_hand()) + self.whole

    @property
    def oldest_start_ns(self) -> int | None:
        starts = [item.started_ns for item in self.in_hand()]
        if self.whole:
            starts.append(self._words[WHOLE_STARTED])
        return min((start for start in starts if start), default=None)

    def in_hand(self) -> list[InHand]:
        words = self._words[SLOTS:PAGE_WORDS].tolist()
        slots = range(0, len(words), SLOT_WORDS)
        return [InHand(words[at] - 1, words[at + 2], words[at + 1]) for at in slots if words[at]]

    def unflushed(self) -> list[tuple[int, list[Verdict]]]:
        """Finished and perhaps not flushed: (number of its flush, verdicts), in order."""
        areas = []
        for index, area in enumerate(self._areas):
            used = self._words[USED_A + 2 * index]
            if used:
                areas.append((self._words[FLUSH_A + 2 * index], list(_records(area, used))))
        return sorted(areas, key=lambda area: area[0])


class Logbook:
    """The pages of one child, its pulse and counters, and a note on how it adapts, in memory both processes map."""

    def __init__(self, fd: int, pages: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, _size(pages))
        memory = memoryview(self._map)
        self._words = memory[: BOOK_WORDS * WORD].cast("q")
        start = BOOK_WORDS * WORD
        self.note = Note(memory[start : start + NOTE_BYTES])
        start += NOTE_BYTES
        self.pages = [Page(memory[start + i * PAGE_BYTES : start + (i + 1) * PAGE_BYTES]) for i in range(pages)]

    @classmethod
    def create(cls, pages: int) -> "Logbook":
        fd = _memory()
        os.ftruncate(fd, _size(pages))
        return cls(fd, pages)

    def beat(self) -> None:
        self._words[PULSE] = time.monotonic_ns()

    @property
    def pulse_ns(self) -> int:
        return self._words[PULSE]

    def count(self, counter: int, n: int) -> None:
        self._words[counter] += n

    def counters(self) -> dict[str, int]:
        names = {"settled": SETTLED, "flushes": FLUSHES, "stale": STALE, "retried": RETRIED, "failed": FAILED}
        return {name: self._words[word] for name, word in names.items()}

    def set_ready(self, ready: bool) -> None:
        """Whether the child listens for slices."""
        self._words[READY] = int(ready)

    def end_slice(self, number: int) -> None:
        """The slice of that number is over, and what it did is counted."""
        self._words[SLICES] = number

    @property
    def is_ready(self) -> bool:
        return bool(self._words[READY])

    @property
    def slices_ended(self) -> int:
        return self._words[SLICES]

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


_NO_SLOTS = memoryview(bytes(MAX_CONCURRENCY * SLOT_WORDS * WORD)).cast("q")


def _memory() -> int:
    """A file that is memory: a full disk must not kill whoever writes a page."""
    if sys.platform == "linux":
        return os.memfd_create("tidemill-logbook")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _size(pages: int) -> int:
    return BOOK_WORDS * WORD + NOTE_BYTES + pages * PAGE_BYTES


def _split(lease_id: UUID) -> tuple[int, int]:
    hi, lo = lease_id.int >> 64, lease_id.int & 0xFFFFFFFFFFFFFFFF
    return _signed(hi), _signed(lo)


def _signed(word: int) -> int:
    return word - (1 << 64) if word > _MASK else word


def _records(area: memoryview, used: int) -> Iterator[Verdict]:
    at = 0
    while at < used:
        size = int.from_bytes(area[at : at + 4], "little")
        yield _decode(area[at + 4 : at + 4 + size])
        at += 4 + size
