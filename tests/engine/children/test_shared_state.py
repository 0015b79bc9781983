"""Tests that the parent can recover the state of a child that died at any time."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tidemill.core.decide import Tally, Verdict
from tidemill.core.kinds import HANDLER_CONCURRENCY_MAX
from tidemill.core.status import ItemStatus
from tidemill.engine.children.shared_state import VERDICT_AREA_BYTES, SharedState

LEASE = UUID("ffffffff-ffff-7fff-bfff-fffffffffffe")  # both halves have their highest bit set

# The steps of a lane, and what the parent must see after each: (started items, unflushed verdicts by flush number).
STEPS: list[tuple[str, list[int], dict[int, list[int]]]] = [
    ("page.reset_and_record_lease(LEASE); page.set_timeout(2.5)", [], {}),
    ("page.mark_item_started(0, 10, 1)", [10], {}),
    ("page.mark_item_started(1, 11, 2)", [10, 11], {}),
    ("page.record_verdict(verdict(10))", [10, 11], {0: [10]}),
    ("page.free_item_slot(0)", [11], {0: [10]}),
    ("page.mark_item_started(0, 12, 1)", [11, 12], {0: [10]}),
    ("page.record_verdict(verdict(11)); page.free_item_slot(1)", [12], {0: [10, 11]}),
    ("sealed = page.seal_verdict_area(0)", [12], {0: [10, 11]}),
    ("page.record_verdict(verdict(12)); page.free_item_slot(0)", [], {0: [10, 11], 1: [12]}),
    ("page.discard_verdict_area(sealed, next_flush_no=1)", [], {1: [12]}),
    ("sealed = page.seal_verdict_area(1)", [], {1: [12]}),
    (
        "page.mark_item_started(0, 13, 1); page.record_verdict(verdict(13)); page.free_item_slot(0)",
        [],
        {1: [12], 2: [13]},
    ),
    ("page.discard_verdict_area(sealed, next_flush_no=2)", [], {2: [13]}),
    ("sealed = page.seal_verdict_area(2)", [], {2: [13]}),
    ("page.discard_verdict_area(sealed, next_flush_no=3)", [], {}),
    ("page.reset_and_record_lease(LEASE)", [], {}),
]
CHILD = """
import os, sys
from uuid import UUID
from tidemill.core.decide import Tally, Verdict
from tidemill.core.status import ItemStatus
from tidemill.engine.children.shared_state import SharedState
def verdict(seq): return Verdict(seq, ItemStatus.DONE, 1, 7, b'{"n": %d}' % seq)
def live(fd, steps):
    book = SharedState(fd, 2)
    book.update_pulse()
    book.add_flush_counts(Tally(items=5))
    exec("\\n".join(steps), {"page": book.lanes[1], "verdict": verdict, "LEASE": UUID(sys.argv[1])})
    os._exit(9)
for n, fd in enumerate(map(int, sys.argv[2].split(",")), 1):
    pid = os.fork() or live(fd, sys.argv[3 : 3 + n])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
"""


@pytest.fixture(scope="module")
def dead() -> Iterator[list[SharedState]]:
    """Yield the shared states of children that died after one step, after two, and so on."""
    books = [SharedState.create(2) for _ in STEPS]
    fds = [book.fd for book in books]
    argv = [sys.executable, "-c", CHILD, str(LEASE), ",".join(map(str, fds)), *(step for step, _, _ in STEPS)]
    subprocess.run(argv, pass_fds=fds, timeout=60, check=True)
    yield books
    for book in books:
        book.close()


@pytest.fixture
def book() -> Iterator[SharedState]:
    made = SharedState.create(2)
    yield made
    made.close()


def verdict(seq: int, result: bytes | None = None) -> Verdict:
    return Verdict(seq, ItemStatus.DONE, 1, 7, b'{"n": %d}' % seq if result is None else result)


@pytest.mark.parametrize("steps", range(1, len(STEPS) + 1))
def test_parent_reads_shared_state_of_child_killed_at_any_step(dead: list[SharedState], steps: int) -> None:
    book = dead[steps - 1]
    page = book.lanes[1]
    _, in_hand, unflushed = STEPS[steps - 1]
    assert page.lease_id == LEASE
    assert page.timeout_s == 2.5
    assert sorted(hand.seq for hand in page.list_running_items()) == in_hand
    assert page.read_unflushed_verdicts() == [
        (flush_no, [verdict(seq) for seq in seqs]) for flush_no, seqs in unflushed.items()
    ]
    assert book.lanes[0].lease_id is None
    assert book.read_counters()["settled"] == 5
    assert book.pulse_ns > 0


def test_lane_state_lists_started_items_with_start_times(book: SharedState) -> None:
    page = book.lanes[0]
    page.reset_and_record_lease(LEASE)
    assert page.oldest_start_ns is None
    page.mark_item_started(5, 100, 3)
    page.mark_item_started(HANDLER_CONCURRENCY_MAX - 1, 2**40, 30_000)
    first, last = page.list_running_items()
    assert (first.seq, first.attempt) == (100, 3)
    assert (last.seq, last.attempt) == (2**40, 30_000)
    assert page.oldest_start_ns == first.started_ns <= last.started_ns


def test_lane_state_counts_running_batch_as_one_start(book: SharedState) -> None:
    page = book.lanes[0]
    page.reset_and_record_lease(LEASE)
    page.mark_batch_started(1_000)
    assert page.batch_item_count == 1_000
    assert page.oldest_start_ns
    page.mark_batch_ended()
    assert not page.batch_item_count
    assert not page.oldest_start_ns


def test_lane_state_is_cleared_when_next_lease_begins(book: SharedState) -> None:
    page = book.lanes[0]
    page.reset_and_record_lease(uuid4(), ingest=True)
    page.mark_item_started(0, 1, 1)
    page.mark_batch_started(3)
    page.record_verdict(verdict(1))
    page.seal_verdict_area(4)
    page.record_verdict(verdict(2))
    page.reset_and_record_lease(LEASE)
    assert (page.lease_id, page.is_ingest, page.batch_item_count) == (LEASE, False, 0)
    assert page.list_running_items() == []
    assert page.read_unflushed_verdicts() == []
    page.clear_lease()
    assert page.lease_id is None


def test_lane_state_rejects_verdict_when_full_and_accepts_after_seal(book: SharedState) -> None:
    page = book.lanes[0]
    page.reset_and_record_lease(LEASE)
    big = [verdict(seq, b"x" * (VERDICT_AREA_BYTES // 4)) for seq in range(4)]
    assert [page.record_verdict(v) for v in big] == [True, True, True, False]
    sealed = page.seal_verdict_area(0)
    assert page.record_verdict(big[3])
    assert page.read_unflushed_verdicts() == [(0, big[:3]), (1, big[3:])]
    page.discard_verdict_area(sealed, next_flush_no=1)
    assert page.read_unflushed_verdicts() == [(1, big[3:])]


def test_lane_state_rejects_oversized_verdict_without_damage(book: SharedState) -> None:
    page = book.lanes[0]
    page.reset_and_record_lease(LEASE)
    assert page.record_verdict(verdict(1))
    assert not page.record_verdict(verdict(2, b"x" * VERDICT_AREA_BYTES))
    assert page.read_unflushed_verdicts() == [(0, [verdict(1)])]
    assert book.lanes[1].read_unflushed_verdicts() == []


def test_lane_state_keeps_every_field_of_verdict(book: SharedState) -> None:
    page = book.lanes[0]
    page.reset_and_record_lease(LEASE)
    full = Verdict(2**40, ItemStatus.RETRY_WAIT, 30_000, 2**31 - 1, b"{}", b"[]", b'{"code": "x"}', "x", 12.5)
    assert page.record_verdict(full)
    assert page.read_unflushed_verdicts() == [(0, [full])]


def test_shared_state_counters_add_up(book: SharedState) -> None:
    book.add_flush_counts(Tally(items=10, done=5, failed=2, retried=3))
    book.add_flush_counts(Tally(items=4, done=4))
    book.add_stale_count(6)
    assert book.read_counters() == {"settled": 11, "flushes": 2, "stale": 6, "retried": 3, "failed": 2}


def test_shared_state_leaves_no_file_behind() -> None:
    made = SharedState.create(1)
    target = Path(f"/proc/self/fd/{made.fd}").readlink()
    made.close()
    assert target.name.endswith("(deleted)")
