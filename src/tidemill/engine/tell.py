"""What is told of a batch while a lane turns it: never a line per item, however many there are."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from tidemill.domain.batch import Lease
from tidemill.domain.decide import Verdict
from tidemill.domain.tally import Tally, retry_codes
from tidemill.telemetry.events import bound, emit

MOST_CODES = 10  # per event: handlers make codes of their own
MOST_DECISIONS = 5


@dataclass(slots=True)
class _Turn:
    size: int
    started: float = field(default_factory=time.monotonic)
    tally: Tally = field(default_factory=Tally)


_turn: ContextVar[_Turn | None] = ContextVar("tidemill_turn", default=None)


@contextlib.contextmanager
def turning(lease: Lease) -> Iterator[None]:
    """While a lane has this batch in hand: every event names it, and its last flush says what it came to."""
    token = _turn.set(_Turn(lease.open))
    try:
        with bound(**lease.facts):
            yield
    finally:
        _turn.reset(token)


def claimed(lease: Lease) -> None:
    with bound(**lease.facts):
        emit(
            "batch.claimed",
            job=lease.job_id,
            kind=lease.kind,
            batch=lease.batch_id,
            size=lease.open,
            isolated=lease.isolated,
        )


def flushed(
    lease: Lease, verdicts: Sequence[Verdict], *, seconds: float | None, fill: float | None = None, plain: int = 0
) -> Tally:
    """These verdicts are durable; how many came to what. ``fill`` is how full the buffer was, if there is one."""
    tally = Tally.of(verdicts)
    tally.items += plain
    tally.done += plain
    emit(
        "batch.flushed",
        job=lease.job_id,
        batch=lease.batch_id,
        items=tally.items,
        done=tally.done,
        not_found=tally.not_found,
        skipped=tally.skipped,
        failed=tally.failed,
        retried=tally.retried,
        codes=_most(tally.codes),
        fill=None if fill is None else round(fill, 2),
        ms=None if seconds is None else round(seconds * 1000, 1),
    )
    if tally.retried:
        _retried(lease, verdicts, tally.retried)
    turn = _turn.get()
    if turn is not None:
        turn.tally.add(tally)
        if turn.tally.items == turn.size:
            _completed(lease, turn)
    return tally


def _retried(lease: Lease, verdicts: Sequence[Verdict], items: int) -> None:
    again = [verdict for verdict in verdicts if verdict.delay is not None]
    emit(
        "item.retry",
        job=lease.job_id,
        batch=lease.batch_id,
        items=items,
        codes=_most(retry_codes(again)),
        decisions=[
            {
                "seq": verdict.seq,
                "attempt": verdict.attempts,
                "delay_s": round(verdict.delay or 0, 2),
                "code": verdict.code,
            }
            for verdict in again[:MOST_DECISIONS]
        ],
    )


def _completed(lease: Lease, turn: _Turn) -> None:
    seconds, tally = time.monotonic() - turn.started, turn.tally
    emit(
        "batch.completed",
        job=lease.job_id,
        batch=lease.batch_id,
        rows=tally.items,
        successes=tally.done,
        failures=tally.failed,
        not_found=tally.not_found,
        skipped=tally.skipped,
        retried=tally.retried,
        ms=round(seconds * 1000),
        rows_per_sec=round(tally.items / max(seconds, 1e-6), 1),
    )


def _most(codes: Counter[str]) -> dict[str, int]:
    return dict(codes.most_common(MOST_CODES))
