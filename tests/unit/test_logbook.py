"""What a dead child had in hand is found by its parent, whatever the moment of death."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tidemill.domain.decide import Verdict
from tidemill.domain.handler import MAX_CONCURRENCY
from tidemill.domain.status import ItemStatus
from tidemill.engine import logbook
from tidemill.engine.logbook import AREA_BYTES, Logbook

LEASE = UUID("ffffffff-ffff-7fff-bfff-fffffffffffe")  # both halves have their highest bit set

# A lane's life, a step at a time. What a parent must see after each: (in hand, unflushed by flush number).
STEPS: list[tuple[str, list[int], dict[int, list[int]]]] = [
    ("page.begin(LEASE); page.set_timeout(2.5)", [], {}),
    ("page.start(0, 10, 1)", [10], {}),
    ("page.start(1, 11, 2)", [10, 11], {}),
    ("page.record(verdict(10))", [10, 11], {0: [10]}),
    ("page.free(0)", [11], {0: [10]}),
    ("page.start(0, 12, 1)", [11, 12], {0: [10]}),
    ("page.record(verdict(11)); page.free(1)", [12], {0: [10, 11]}),
    ("sealed = page.turn_over(0)", [12], {0: [10, 11]}),
    ("page.record(verdict(12)); page.free(0)", [], {0: [10, 11], 1: [12]}),
    ("page.forget(sealed)", [], {1: [12]}),
    ("sealed = page.turn_over(1)", [], {1: [12]}),
    ("page.start(0, 13, 1); page.record(verdict(13)); page.free(0)", [], {1: [12], 2: [13]}),
    ("page.forget(sealed)", [], {2: [13]}),
    ("sealed = page.turn_over(2)", [], {2: [13]}),
    ("page.forget(sealed)", [], {}),
    ("page.begin(LEASE)", [], {}),
]
CHILD = """
import os, sys
from uuid import UUID
from tidemill.domain.decide import Verdict
from tidemill.domain.status import ItemStatus
from tidemill.engine.logbook import Logbook
def verdict(seq): return Verdict(seq, ItemStatus.DONE, 1, 7, b'{"n": %d}' % seq)
def live(fd, steps):
    book = Logbook(fd, 2)
    book.beat()
    book.count(1, 5)
    exec("\\n".join(steps), {"page": book.pages[1], "verdict": verdict, "LEASE": UUID(sys.argv[1])})
    os._exit(9)
for n, fd in enumerate(map(int, sys.argv[2].split(",")), 1):
    pid = os.fork() or live(fd, sys.argv[3 : 3 + n])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
"""


@pytest.fixture(scope="module")
def dead() -> Iterator[list[Logbook]]:
    """The books of children that died after one step, after two, and so on."""
    books = [Logbook.create(2) for _ in STEPS]
    fds = [book.fd for book in books]
    argv = [sys.executable, "-c", CHILD, str(LEASE), ",".join(map(str, fds)), *(step for step, _, _ in STEPS)]
    subprocess.run(argv, pass_fds=fds, timeout=60, check=True)
    yield books
    for book in books:
        book.close()


@pytest.fixture
def book() -> Iterator[Logbook]:
    made = Logbook.create(2)
    yield made
    made.close()


def verdict(seq: int, result: bytes | None = None) -> Verdict:
    return Verdict(seq, ItemStatus.DONE, 1, 7, b'{"n": %d}' % seq if result is None else result)


@pytest.mark.parametrize("steps", range(1, len(STEPS) + 1))
def test_a_parent_sees_what_its_child_had_done_before_it_died(dead: list[Logbook], steps: int) -> None:
    book = dead[steps - 1]
    page = book.pages[1]
    _, in_hand, unflushed = STEPS[steps - 1]
    assert page.lease_id == LEASE
    assert page.timeout == 2.5
    assert sorted(hand.seq for hand in page.in_hand()) == in_hand
    assert page.unflushed() == [(flush_no, [verdict(seq) for seq in seqs]) for flush_no, seqs in unflushed.items()]
    assert book.pages[0].lease_id is None
    assert book.counters()["settled"] == 5
    assert book.pulse_ns > 0


def test_a_page_says_who_is_in_hand_and_since_when(book: Logbook) -> None:
    page = book.pages[0]
    page.begin(LEASE)
    assert page.oldest_start_ns is None
    page.start(5, 100, 3)
    page.start(MAX_CONCURRENCY - 1, 2**40, 30_000)
    first, last = page.in_hand()
    assert (first.seq, first.attempt) == (100, 3)
    assert (last.seq, last.attempt) == (2**40, 30_000)
    assert page.oldest_start_ns == first.started_ns <= last.started_ns


def test_a_whole_batch_in_hand_counts_as_one_start(book: Logbook) -> None:
    page = book.pages[0]
    page.begin(LEASE)
    page.start_whole(1_000)
    assert page.whole == 1_000
    assert page.oldest_start_ns
    page.free_whole()
    assert not page.whole
    assert not page.oldest_start_ns


def test_a_page_is_begun_anew_without_anything_of_the_last_lease(book: Logbook) -> None:
    page = book.pages[0]
    page.begin(uuid4(), ingest=True)
    page.start(0, 1, 1)
    page.start_whole(3)
    page.record(verdict(1))
    page.turn_over(4)
    page.record(verdict(2))
    page.begin(LEASE)
    assert (page.lease_id, page.is_ingest, page.whole) == (LEASE, False, 0)
    assert page.in_hand() == []
    assert page.unflushed() == []
    page.end()
    assert page.lease_id is None


def test_a_page_refuses_a_verdict_when_it_is_full_and_takes_it_when_there_is_room(book: Logbook) -> None:
    page = book.pages[0]
    page.begin(LEASE)
    big = [verdict(seq, b"x" * (AREA_BYTES // 4)) for seq in range(4)]
    assert [page.record(v) for v in big] == [True, True, True, False]
    sealed = page.turn_over(0)
    assert page.record(big[3])
    assert page.unflushed() == [(0, big[:3]), (1, big[3:])]
    page.forget(sealed)
    assert page.unflushed() == [(1, big[3:])]


def test_a_verdict_larger_than_the_page_is_refused_and_harms_nothing(book: Logbook) -> None:
    page = book.pages[0]
    page.begin(LEASE)
    assert page.record(verdict(1))
    assert not page.record(verdict(2, b"x" * AREA_BYTES))
    assert page.unflushed() == [(0, [verdict(1)])]
    assert book.pages[1].unflushed() == []


def test_every_field_of_a_verdict_survives(book: Logbook) -> None:
    page = book.pages[0]
    page.begin(LEASE)
    full = Verdict(2**40, ItemStatus.RETRY_WAIT, 30_000, 2**31 - 1, b"{}", b"[]", b'{"code": "x"}', "x", 12.5)
    assert page.record(full)
    assert page.unflushed() == [(0, [full])]


def test_counters_add_up(book: Logbook) -> None:
    for name in (logbook.SETTLED, logbook.FLUSHES, logbook.STALE, logbook.RETRIED, logbook.FAILED):
        book.count(name, name)
        book.count(name, 10)
    assert book.counters() == {"settled": 11, "flushes": 12, "stale": 13, "retried": 14, "failed": 15}


def test_a_book_leaves_no_file_behind() -> None:
    made = Logbook.create(1)
    target = Path(f"/proc/self/fd/{made.fd}").readlink()
    made.close()
    assert target.name.endswith("(deleted)")
