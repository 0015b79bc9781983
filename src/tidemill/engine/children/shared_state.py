"""The state of a child process, in memory that its parent can still read after the child died.

``LaneState``: one page per lane with its lease, the items that were started, and the verdicts that are not flushed
yet. With it the parent records finished items and finds the suspects of a crash. Verdicts are in two areas, each with
the number of its flush. One area fills while the other is flushed; after the commit, one write (used = 0) clears it.
Whenever the child dies, an area is either empty or has exactly the verdicts of its flush, and the fence detects
whether that flush was committed.

``SeqlockText``: a short text that one process overwrites repeatedly and another reads, consistently or not at all. The
writer increments a counter before and after a write (a sequence lock); an odd count marks an unfinished write. The
checksum protects readers on processors that reorder writes.
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
    """A text with one writer and any number of readers, without waiting."""

    def __init__(self, memory: memoryview) -> None:
        self._header = memory[:TEXT_HEADER_BYTES].cast("q")
        self._text = memory[TEXT_HEADER_BYTES:SHARED_TEXT_BYTES]

    def write(self, text: bytes) -> bool:
        """Replace the text; return False and keep the old text if the new one is too long."""
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
        """Return the newest text; None if no text was written, or if its writer died during a write."""
        for _ in range(MAX_TEXT_READ_ATTEMPTS):
            count, size, checksum, _unused = self._header.tolist()
            if count == 0:
                return None
            text = bytes(self._text[: max(0, min(size, MAX_SHARED_TEXT_BYTES))])
            if not count & 1 and self._header[TEXT_SEQUENCE_WORD] == count and zlib.crc32(text) == checksum:
                return text
        return None


# words of the header: pulse, counters, and the state of time slices
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
# words of a lane's page
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
SLOT_WORDS = 3  # seq + 1 (0: free), start time, attempt
VERDICT_AREA_BYTES = 2 * 1024 * 1024
LANE_WORDS = FIRST_SLOT_WORD + HANDLER_CONCURRENCY_MAX * SLOT_WORDS
LANE_BYTES = LANE_WORDS * WORD_BYTES + 2 * VERDICT_AREA_BYTES
_SIGNED_WORDS = struct.Struct(">qq")  # the two halves of a UUID

_encode_verdict = msgspec.msgpack.Encoder().encode
_decode_verdict = msgspec.msgpack.Decoder(Verdict).decode


class LaneState:
    """The page of one lane."""

    def __init__(self, memory: memoryview) -> None:
        self._words = memory[: LANE_WORDS * WORD_BYTES].cast("q")
        start = LANE_WORDS * WORD_BYTES
        self._areas = (
            memory[start : start + VERDICT_AREA_BYTES],
            memory[start + VERDICT_AREA_BYTES : start + 2 * VERDICT_AREA_BYTES],
        )
        self._filling_area = 0

    # Methods of the child, which writes.

    def reset_and_record_lease(self, lease_id: UUID, *, ingest: bool = False) -> None:
        """Record the lease before the claim is sent, so that the parent can find a claim that commits."""
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
        """Record that the lane holds no lease."""
        self._words[LEASE_HI_WORD] = self._words[LEASE_LO_WORD] = 0

    def mark_item_started(self, slot: int, seq: int, attempt: int) -> None:
        at = FIRST_SLOT_WORD + slot * SLOT_WORDS
        words = self._words
        words[at + 1] = time.monotonic_ns()
        words[at + 2] = attempt
        words[at] = seq + 1

    def extend_item_timeout(self, slot: int, seconds: float) -> None:
        """Move the start of an item, so that its timeout ends this much later."""
        self._words[FIRST_SLOT_WORD + slot * SLOT_WORDS + 1] += int(seconds * 1e9)

    def free_item_slot(self, slot: int) -> None:
        self._words[FIRST_SLOT_WORD + slot * SLOT_WORDS] = 0

    def mark_batch_started(self, count: int) -> None:
        self._words[BATCH_STARTED_WORD] = time.monotonic_ns()
        self._words[BATCH_ITEMS_WORD] = count

    def mark_batch_answered(self) -> None:
        """Stop the timeout of a batch: the handler returned, and the flush does not count."""
        self._words[BATCH_STARTED_WORD] = 0

    def mark_item_answered(self, slot: int) -> None:
        """Stop the timeout of one item: the handler returned, and the flush does not count."""
        self._words[FIRST_SLOT_WORD + slot * SLOT_WORDS + 1] = 0

    def mark_batch_ended(self) -> None:
        self._words[BATCH_ITEMS_WORD] = 0

    def record_verdict(self, verdict: Verdict) -> bool:
        """Store a verdict until it is flushed; return False if the area is full."""
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
        """Assign the filled area to flush ``flush_no`` and fill the other one; return the sealed area."""
        sealed = self._filling_area
        other = 1 - sealed
        self._words[FLUSH_A_WORD + 2 * sealed] = flush_no
        self._words[FLUSH_A_WORD + 2 * other] = flush_no + 1
        self._filling_area = other
        return sealed

    def discard_verdict_area(self, area: int, next_flush_no: int) -> None:
        """Clear a sealed area after its flush is durable, and assign the other area to the next flush.

        The number of the next flush is known only now, because a flush may be written in parts.
        """
        self._words[FLUSH_A_WORD + 2 * self._filling_area] = next_flush_no
        self._words[USED_A_WORD + 2 * area] = 0

    # Methods of the parent, which reads.

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
        """The number of items that a set-based handler is processing."""
        return self._words[BATCH_ITEMS_WORD]

    @property
    def running_item_count(self) -> int:
        return len(self.list_running_items()) + self.batch_item_count

    @property
    def oldest_start_ns(self) -> int | None:
        starts = [item.started_ns for item in self.list_running_items()]
        if self.batch_item_count:
            starts.append(self._words[BATCH_STARTED_WORD])
        return min((start for start in starts if start), default=None)

    def list_running_items(self) -> list[RunningItem]:
        words = self._words[FIRST_SLOT_WORD:LANE_WORDS].tolist()
        slots = range(0, len(words), SLOT_WORDS)
        return [RunningItem(words[at] - 1, words[at + 2], words[at + 1]) for at in slots if words[at]]

    def read_unflushed_verdicts(self) -> list[tuple[int, list[Verdict]]]:
        """Return finished verdicts that may not be flushed, in order: (number of the flush, verdicts)."""
        areas = []
        for index, area in enumerate(self._areas):
            used = self._words[USED_A_WORD + 2 * index]
            if used:
                areas.append((self._words[FLUSH_A_WORD + 2 * index], list(_read_verdicts(area, used))))
        return sorted(areas, key=lambda area: area[0])


class SharedState:
    """The pages of one child, its pulse, counters and adaptive state, in memory that both processes map."""

    def __init__(self, fd: int, lanes: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, _compute_total_bytes(lanes))
        memory = memoryview(self._map)
        self._words = memory[: STATE_HEADER_WORDS * WORD_BYTES].cast("q")
        start = STATE_HEADER_WORDS * WORD_BYTES
        self.adaptive_text = SeqlockText(memory[start : start + SHARED_TEXT_BYTES])
        start += SHARED_TEXT_BYTES
        self.lanes = [LaneState(memory[start + i * LANE_BYTES : start + (i + 1) * LANE_BYTES]) for i in range(lanes)]

    @classmethod
    def create(cls, lanes: int) -> "SharedState":
        fd = _create_memory_file()
        os.ftruncate(fd, _compute_total_bytes(lanes))
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
        """Count items whose verdicts were not written because the lease was lost."""
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

    def set_accepts_slices(self, ready: bool) -> None:
        """Set whether the child accepts time slices."""
        self._words[READY_WORD] = int(ready)

    def mark_slice_ended(self, number: int) -> None:
        """Record that the slice with this number ended and its work is counted."""
        self._words[SLICES_ENDED_WORD] = number

    @property
    def accepts_slices(self) -> bool:
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
    """Create a file in memory: with a file on disk, a full disk would kill the process that writes a page."""
    if sys.platform == "linux":
        return os.memfd_create("tidemill-logbook")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _compute_total_bytes(pages: int) -> int:
    return STATE_HEADER_WORDS * WORD_BYTES + SHARED_TEXT_BYTES + pages * LANE_BYTES


def _read_verdicts(area: memoryview, used: int) -> Iterator[Verdict]:
    at = 0
    while at < used:
        size = int.from_bytes(area[at : at + 4], "little")
        yield _decode_verdict(area[at + 4 : at + 4 + size])
        at += 4 + size
