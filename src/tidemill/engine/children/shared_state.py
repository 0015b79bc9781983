"""A short text that one process writes over and over and another reads: whole, or not at all.

The writer counts before and after (a sequence lock): an odd count is a text in the making. The checksum holds where
the processor does not promise that others see writes in their order.

What a child process has in hand, in memory that its parent still has when the child is dead. One page per lane. A
page names the lease, the items that were started, and the verdicts that are not flushed yet: enough for the parent to
save what was finished, and to know whom a death makes suspect. Verdicts are kept in two areas, each with the number
of the flush it belongs to. While one is being flushed the other fills; a flush that committed is forgotten by one
write (used = 0). Whatever the moment of death, an area is either empty or has exactly the verdicts of its flush, and
the fence tells whether that flush arrived.
"""

import mmap
import os
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from uuid import UUID

import msgspec

from tidemill.core.child_exit import RunningItem
from tidemill.core.decide import Tally, Verdict
from tidemill.core.kinds import HANDLER_CONCURRENCY_MAX

WORD_BYTES = 8
TEXT_SEQUENCE_WORD, TEXT_SIZE_WORD, TEXT_CHECKSUM_WORD = range(3)
TEXT_HEADER_BYTES = 4 * WORD_BYTES
SHARED_TEXT_BYTES = 8 * 1024
MAX_SHARED_TEXT_BYTES = SHARED_TEXT_BYTES - TEXT_HEADER_BYTES
MAX_TEXT_READ_ATTEMPTS = 100


class SeqlockText:
    """One writer, any number of readers; nobody waits for anybody."""

    def __init__(self, memory: memoryview) -> None:
        self._header = memory[:TEXT_HEADER_BYTES].cast("q")
        self._text = memory[TEXT_HEADER_BYTES:SHARED_TEXT_BYTES]

    def write(self, text: bytes) -> bool:
        """False when it is too long; then the old one stays."""
        if len(text) > MAX_SHARED_TEXT_BYTES:
            return False
        head = self._header
        count = head[TEXT_SEQUENCE_WORD] | 1  # odd, also after a writer that died in the middle
        head[TEXT_SEQUENCE_WORD] = count
        head[TEXT_SIZE_WORD], head[TEXT_CHECKSUM_WORD] = len(text), zlib.crc32(text)
        self._text[: len(text)] = text
        head[TEXT_SEQUENCE_WORD] = count + 1
        return True

    def read(self) -> bytes | None:
        """The newest text; None when there is none, or its writer died while writing."""
        for _ in range(MAX_TEXT_READ_ATTEMPTS):
            count, size, checksum, _unused = self._header.tolist()
            if count == 0:
                return None
            text = bytes(self._text[: max(0, min(size, MAX_SHARED_TEXT_BYTES))])
            if not count & 1 and self._header[TEXT_SEQUENCE_WORD] == count and zlib.crc32(text) == checksum:
                return text
        return None


# words of the book: pulse, counters, and how it stands with slices
(
    PULSE_WORD,
    SETTLED_COUNTER,
    FLUSHES_COUNTER,
    STALE_COUNTER,
    RETRIED_COUNTER,
    FAILED_COUNTER,
    READY_WORD,
    SLICES_ENDED_WORD,
) = range(8)
STATE_HEADER_WORDS = 16
# words of a page
(
    LEASE_HI_WORD,
    LEASE_LO_WORD,
    TIMEOUT_MS_WORD,
    BATCH_ITEMS_WORD,
    BATCH_STARTED_WORD,
    INGEST_WORD,
    FLUSH_A_WORD,
    USED_A_WORD,
    FLUSH_B_WORD,
    USED_B_WORD,
) = range(10)
FIRST_SLOT_WORD = 16
SLOT_WORDS = 3  # seq + 1 (0: free), started, attempt
VERDICT_AREA_BYTES = 2 * 1024 * 1024
LANE_WORDS = FIRST_SLOT_WORD + HANDLER_CONCURRENCY_MAX * SLOT_WORDS
LANE_BYTES = LANE_WORDS * WORD_BYTES + 2 * VERDICT_AREA_BYTES
_SIGNED_WORDS = struct.Struct(">qq")  # the two halves of a UUID

_encode_verdict = msgspec.msgpack.Encoder().encode
_decode_verdict = msgspec.msgpack.Decoder(Verdict).decode


class LaneState:
    """One lane's page."""

    def __init__(self, memory: memoryview) -> None:
        self._words = memory[: LANE_WORDS * WORD_BYTES].cast("q")
        start = LANE_WORDS * WORD_BYTES
        self._areas = (
            memory[start : start + VERDICT_AREA_BYTES],
            memory[start + VERDICT_AREA_BYTES : start + 2 * VERDICT_AREA_BYTES],
        )
        self._filling_area = 0

    # What the child writes.

    def record_lease_start(self, lease_id: UUID, *, ingest: bool = False) -> None:
        """Before the claim is sent: a claim that commits is found by its lease."""
        words = self._words
        words[USED_A_WORD] = words[USED_B_WORD] = words[BATCH_ITEMS_WORD] = 0
        words[FIRST_SLOT_WORD:LANE_WORDS] = _EMPTY_SLOTS
        words[FLUSH_A_WORD], words[FLUSH_B_WORD] = 0, 1
        self._filling_area = 0
        words[INGEST_WORD] = int(ingest)
        words[LEASE_HI_WORD], words[LEASE_LO_WORD] = _SIGNED_WORDS.unpack(lease_id.bytes)

    def set_timeout(self, seconds: float | None) -> None:
        self._words[TIMEOUT_MS_WORD] = 0 if seconds is None else max(1, int(seconds * 1000))

    def clear_lease(self) -> None:
        """Nothing in hand any more."""
        self._words[LEASE_HI_WORD] = self._words[LEASE_LO_WORD] = 0

    def mark_item_started(self, slot: int, seq: int, attempt: int) -> None:
        at = FIRST_SLOT_WORD + slot * SLOT_WORDS
        words = self._words
        words[at + 1] = time.monotonic_ns()
        words[at + 2] = attempt
        words[at] = seq + 1

    def extend_item_time(self, slot: int, seconds: float) -> None:
        """An item began that much later, as far as its time limit goes."""
        self._words[FIRST_SLOT_WORD + slot * SLOT_WORDS + 1] += int(seconds * 1e9)

    def free_slot(self, slot: int) -> None:
        self._words[FIRST_SLOT_WORD + slot * SLOT_WORDS] = 0

    def mark_batch_started(self, count: int) -> None:
        self._words[BATCH_STARTED_WORD] = time.monotonic_ns()
        self._words[BATCH_ITEMS_WORD] = count

    def mark_batch_answered(self) -> None:
        """The set-based handler has answered: what follows is the database's time, not its own."""
        self._words[BATCH_STARTED_WORD] = 0

    def mark_item_answered(self, slot: int) -> None:
        """The same for one item."""
        self._words[FIRST_SLOT_WORD + slot * SLOT_WORDS + 1] = 0

    def mark_batch_ended(self) -> None:
        self._words[BATCH_ITEMS_WORD] = 0

    def record_verdict(self, verdict: Verdict) -> bool:
        """Keep a verdict until it is flushed; False when there is no room for it now."""
        data = _encode_verdict(verdict)
        used_word = USED_A_WORD + 2 * self._filling_area
        used = self._words[used_word]
        end = used + 4 + len(data)
        if end > VERDICT_AREA_BYTES:
            return False
        area = self._areas[self._filling_area]
        area[used : used + 4] = len(data).to_bytes(4, "little")
        area[used + 4 : end] = data
        self._words[used_word] = end
        return True

    def seal_verdict_area(self, flush_no: int) -> int:
        """The filled area is about to be flushed as ``flush_no``; the other one fills from here on."""
        sealed = self._filling_area
        other = 1 - sealed
        self._words[FLUSH_A_WORD + 2 * sealed] = flush_no
        self._words[FLUSH_A_WORD + 2 * other] = flush_no + 1
        self._filling_area = other
        return sealed

    def discard_verdict_area(self, area: int, next_flush_no: int) -> None:
        """The flush of a sealed area is durable; the other area belongs to the next one.

        The number of the next flush is known only now: a flush may have been written in parts.
        """
        self._words[FLUSH_A_WORD + 2 * self._filling_area] = next_flush_no
        self._words[USED_A_WORD + 2 * area] = 0

    # What the parent reads.

    @property
    def lease_id(self) -> UUID | None:
        hi, lo = self._words[LEASE_HI_WORD], self._words[LEASE_LO_WORD]
        return UUID(bytes=_SIGNED_WORDS.pack(hi, lo)) if hi or lo else None

    @property
    def is_ingest(self) -> bool:
        return bool(self._words[INGEST_WORD])

    @property
    def timeout_s(self) -> float | None:
        return self._words[TIMEOUT_MS_WORD] / 1000 or None

    @property
    def batch_item_count(self) -> int:
        """How many items a set-based handler has in hand, all of them at once."""
        return self._words[BATCH_ITEMS_WORD]

    @property
    def started_item_count(self) -> int:
        return len(self.list_started_items()) + self.batch_item_count

    @property
    def oldest_start_ns(self) -> int | None:
        starts = [item.started_ns for item in self.list_started_items()]
        if self.batch_item_count:
            starts.append(self._words[BATCH_STARTED_WORD])
        return min((start for start in starts if start), default=None)

    def list_started_items(self) -> list[RunningItem]:
        words = self._words[FIRST_SLOT_WORD:LANE_WORDS].tolist()
        slots = range(0, len(words), SLOT_WORDS)
        return [RunningItem(words[at] - 1, words[at + 2], words[at + 1]) for at in slots if words[at]]

    def read_unflushed_verdicts(self) -> list[tuple[int, list[Verdict]]]:
        """Finished and perhaps not flushed: (number of its flush, verdicts), in order."""
        areas = []
        for index, area in enumerate(self._areas):
            used = self._words[USED_A_WORD + 2 * index]
            if used:
                areas.append((self._words[FLUSH_A_WORD + 2 * index], list(_read_verdicts(area, used))))
        return sorted(areas, key=lambda area: area[0])


class SharedState:
    """The pages of one child, its pulse and counters, and a note on how it adapts, in memory both processes map."""

    def __init__(self, fd: int, lanes: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, _total_bytes(lanes))
        memory = memoryview(self._map)
        self._words = memory[: STATE_HEADER_WORDS * WORD_BYTES].cast("q")
        start = STATE_HEADER_WORDS * WORD_BYTES
        self.adaptive_text = SeqlockText(memory[start : start + SHARED_TEXT_BYTES])
        start += SHARED_TEXT_BYTES
        self.lanes = [LaneState(memory[start + i * LANE_BYTES : start + (i + 1) * LANE_BYTES]) for i in range(lanes)]

    @classmethod
    def create(cls, lanes: int) -> "SharedState":
        fd = _create_memory_file()
        os.ftruncate(fd, _total_bytes(lanes))
        return cls(fd, lanes)

    def update_pulse(self) -> None:
        self._words[PULSE_WORD] = time.monotonic_ns()

    @property
    def pulse_ns(self) -> int:
        return self._words[PULSE_WORD]

    def add_flush_counts(self, tally: Tally) -> None:
        words = self._words
        words[SETTLED_COUNTER] += tally.items - tally.retried
        words[FLUSHES_COUNTER] += 1
        words[RETRIED_COUNTER] += tally.retried
        words[FAILED_COUNTER] += tally.failed

    def add_stale_count(self, items: int) -> None:
        """Items whose verdicts were not written, because the lease was lost."""
        self._words[STALE_COUNTER] += items

    def read_counters(self) -> dict[str, int]:
        names = {
            "settled": SETTLED_COUNTER,
            "flushes": FLUSHES_COUNTER,
            "stale": STALE_COUNTER,
            "retried": RETRIED_COUNTER,
            "failed": FAILED_COUNTER,
        }
        return {name: self._words[word] for name, word in names.items()}

    def set_ready(self, ready: bool) -> None:
        """Whether the child listens for slices."""
        self._words[READY_WORD] = int(ready)

    def mark_slice_ended(self, number: int) -> None:
        """The slice of that number is over, and what it did is counted."""
        self._words[SLICES_ENDED_WORD] = number

    @property
    def is_ready(self) -> bool:
        return bool(self._words[READY_WORD])

    @property
    def slices_ended(self) -> int:
        return self._words[SLICES_ENDED_WORD]

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


_EMPTY_SLOTS = memoryview(bytes(HANDLER_CONCURRENCY_MAX * SLOT_WORDS * WORD_BYTES)).cast("q")


def _create_memory_file() -> int:
    """A file that is memory: a full disk must not kill whoever writes a page."""
    if sys.platform == "linux":
        return os.memfd_create("tidemill-logbook")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _total_bytes(pages: int) -> int:
    return STATE_HEADER_WORDS * WORD_BYTES + SHARED_TEXT_BYTES + pages * LANE_BYTES


def _read_verdicts(area: memoryview, used: int) -> Iterator[Verdict]:
    at = 0
    while at < used:
        size = int.from_bytes(area[at : at + 4], "little")
        yield _decode_verdict(area[at + 4 : at + 4 + size])
        at += 4 + size
