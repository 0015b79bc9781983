"""Batches: how many items to claim, and how to split a batch."""

import bisect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

SEQ_LIST_MAX = 1_000  # a list is one array value: 1,000 seqs cost 1.3 ms to slice, a million 1.4 s
CARVE_FACTOR = 1.5  # a batch up to this many times the wanted size is claimed whole
BATCH_INPUT_MAX_BYTES = 4 * 1024 * 1024  # encoded input of one batch; in Python it takes five times as much memory
RETRY_BUCKETS_MAX = 8  # retry lists per flush


@dataclass(frozen=True, slots=True)
class Lease:
    """A batch that a worker has claimed. Only the holder of (lease_id, flush_no) may change it."""

    batch_id: int
    job_id: UUID
    owner_id: int
    kind: str
    lo: int
    hi: int
    seqs: tuple[int, ...] | None
    open: int
    lease_id: UUID
    flush_no: int = 0
    isolated: bool = False
    crashes: int = 0
    losses: int = 0
    disconnects: int = 0  # transactions of the batch that lost their database connection
    expiries: int = 0  # leases that expired in a row while the item ran alone
    retrying: bool = False
    half: bool = False  # half of a list that its handler could not process: it is not merged with other lists
    sparse: bool = False
    request_id: str | None = None
    traceparent: str | None = None
    limiter: str | None = None  # the job's own limiter, in addition to that of its handler
    requires: Sequence[str] = ()  # what a worker must declare to run the batch

    @property
    def event_fields(self) -> dict[str, Any]:
        """The fields of every event about the batch."""
        names = {"job": self.job_id, "kind": self.kind, "batch": self.batch_id}
        return names | {"request_id": self.request_id, "traceparent": self.traceparent}

    @property
    def is_list(self) -> bool:
        return self.seqs is not None

    @property
    def is_untouched_range(self) -> bool:
        """Whether this is a range and none of its items has an outcome yet."""
        return self.seqs is None and self.open == self.hi - self.lo

    def with_flushed(self, count: int) -> "Lease":
        return replace(self, open=self.open - count, flush_no=self.flush_no + 1)


ClaimMethod = Literal["whole", "carve", "slice", "merge"]


def choose_claim_method(ready: Lease, target_items: int) -> ClaimMethod:
    """Return how to claim about ``target_items`` items of a ready batch. Isolated items are claimed one by one."""
    target_items = 1 if ready.isolated else target_items
    if ready.seqs is not None:
        if ready.open > target_items:
            return "slice"
        return "whole" if ready.isolated or ready.half else "merge"
    if ready.is_untouched_range and (ready.open > target_items * CARVE_FACTOR or (ready.isolated and ready.open > 1)):
        return "carve"
    return "whole"


class BatchCutter:
    """Cuts a sequence of items into batches of limited items and bytes, with at least one item each."""

    def __init__(self, lo: int, max_items: int) -> None:
        self._max_items = max_items
        self._lo = self._next = lo
        self._bytes = 0
        self._cuts: list[tuple[int, int]] = []

    def add_item(self, size: int) -> None:
        if self._next > self._lo and (
            self._next - self._lo >= self._max_items or self._bytes + size > BATCH_INPUT_MAX_BYTES
        ):
            self._close_batch()
        self._next += 1
        self._bytes += size

    def add_items(self, sizes: Sequence[int]) -> None:
        """Add many items; items that fit into a batch are added together."""
        before = list(itertools.accumulate(sizes, initial=0))
        at = 0
        while at < len(sizes):
            room = self._max_items - (self._next - self._lo)
            fits = bisect.bisect_right(before, before[at] + BATCH_INPUT_MAX_BYTES - self._bytes) - 1
            end = min(at + room, fits, len(sizes))
            if end <= at:
                self.add_item(sizes[at])
                end = at + 1
            else:
                self._next += end - at
                self._bytes += before[end] - before[at]
            at = end

    def close_and_get_starts_and_ends(self) -> tuple[list[int], list[int]]:
        """Close the last batch; return the starts and the ends of all batches."""
        if self._next > self._lo:
            self._close_batch()
        return [lo for lo, _ in self._cuts], [hi for _, hi in self._cuts]

    def _close_batch(self) -> None:
        self._cuts.append((self._lo, self._next))
        self._lo, self._bytes = self._next, 0


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A part of a batch that is being split. ``open`` is counted by the database."""

    lo: int
    hi: int
    seqs: tuple[int, ...] | None = None
    isolated: bool = False
    half: bool = False


def split_off_suspects(lease: Lease, suspects: Iterable[int]) -> list[BatchPart]:
    """Split a batch so that every suspect runs alone and the other items do not."""
    alone = sorted(set(suspects))
    if lease.seqs is not None:
        alone = [seq for seq in alone if seq in lease.seqs]  # other suspects were settled just before the crash
        rest = tuple(seq for seq in lease.seqs if seq not in set(alone))
        lists = [(tuple(alone), True), (rest, False)]
        return [BatchPart(seqs[0], seqs[-1] + 1, seqs, isolated, lease.half) for seqs, isolated in lists if seqs]
    if len(alone) == lease.hi - lease.lo:
        return [BatchPart(lease.lo, lease.hi, isolated=True)]
    pieces = []
    start = lease.lo
    for seq in alone:
        pieces += [BatchPart(start, seq), BatchPart(seq, seq + 1, isolated=True)]
        start = seq + 1
    pieces.append(BatchPart(start, lease.hi))
    return [piece for piece in pieces if piece.lo < piece.hi]


def split_evenly(lease: Lease, parts: int = 2) -> list[BatchPart]:
    """Split a batch into parts of equal size, to find the item that a set-based handler cannot process."""
    size = lease.hi - lease.lo if lease.seqs is None else len(lease.seqs)
    bounds = itertools.pairwise([size * part // parts for part in range(parts + 1)])
    if lease.seqs is None:
        return [BatchPart(lease.lo + at, lease.lo + end, isolated=lease.isolated) for at, end in bounds if at < end]
    lists = [lease.seqs[at:end] for at, end in bounds if at < end]
    return [BatchPart(seqs[0], seqs[-1] + 1, seqs, lease.isolated, half=True) for seqs in lists]


def group_retries_by_delay(waits: Sequence[tuple[int, float]]) -> list[tuple[float, list[int]]]:
    """Group (seq, delay) pairs into a few lists. Each list waits for the longest delay in it.

    Without a limit on the lists, ``Retry(after=…)`` with a different delay per item would create one list, one claim
    and one flush per item.
    """
    groups: list[list[tuple[int, float]]] = []
    for wait in sorted(waits, key=lambda wait: wait[1]):
        if groups and wait[1] <= groups[-1][0][1] * 1.25 + 0.05:  # delays within 25 % share a list
            groups[-1].append(wait)
        else:
            groups.append([wait])
    while len(groups) > RETRY_BUCKETS_MAX:
        nearest = min(range(len(groups) - 1), key=lambda i: groups[i + 1][-1][1] / (groups[i][-1][1] + 0.05))
        groups[nearest : nearest + 2] = [groups[nearest] + groups[nearest + 1]]
    buckets = [(group[-1][1], sorted(seq for seq, _ in group)) for group in groups]
    return [
        (delay, seqs[start : start + SEQ_LIST_MAX])
        for delay, seqs in buckets
        for start in range(0, len(seqs), SEQ_LIST_MAX)
    ]
