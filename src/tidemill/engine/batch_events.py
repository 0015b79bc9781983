"""What is told of a batch while a lane turns it: never a line per item, however many there are."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from tidemill.core.batch import Lease
from tidemill.core.decide import Tally, Verdict, count_retry_codes
from tidemill.telemetry.events import bind_fields, emit

MAX_EVENT_CODES = 10  # per event: handlers make codes of their own
MAX_EVENT_DECISIONS = 5


@dataclass(slots=True)
class _BatchProgress:
    size: int
    started: float = field(default_factory=time.monotonic)
    tally: Tally = field(default_factory=Tally)


_batch_progress: ContextVar[_BatchProgress | None] = ContextVar("tidemill_turn", default=None)


@contextlib.contextmanager
def track_batch(lease: Lease) -> Iterator[None]:
    """While a lane has this batch in hand: every event names it, and its last flush says what it came to."""
    token = _batch_progress.set(_BatchProgress(lease.open))
    try:
        with bind_fields(**lease.event_fields):
            yield
    finally:
        _batch_progress.reset(token)


def emit_batch_claimed(lease: Lease) -> None:
    with bind_fields(**lease.event_fields):
        emit(
            "batch.claimed",
            job=lease.job_id,
            kind=lease.kind,
            batch=lease.batch_id,
            size=lease.open,
            isolated=lease.isolated,
        )


def emit_batch_flushed(
    lease: Lease, verdicts: Sequence[Verdict], *, seconds: float | None, fill: float | None = None, sparse_done: int = 0
) -> Tally:
    """These verdicts are durable; how many came to what. ``fill`` is how full the buffer was, if there is one."""
    tally = Tally.from_verdicts(verdicts)
    tally.items += sparse_done
    tally.done += sparse_done
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
        codes=_most_common_codes(tally.codes),
        fill=None if fill is None else round(fill, 2),
        ms=None if seconds is None else round(seconds * 1000, 1),
    )
    if tally.retried:
        _emit_items_retried(lease, verdicts, tally.retried)
    turn = _batch_progress.get()
    if turn is not None:
        turn.tally.add(tally)
        if turn.tally.items == turn.size:
            _emit_batch_completed(lease, turn)
    return tally


def _emit_items_retried(lease: Lease, verdicts: Sequence[Verdict], items: int) -> None:
    again = [verdict for verdict in verdicts if verdict.delay is not None]
    emit(
        "item.retry",
        job=lease.job_id,
        batch=lease.batch_id,
        items=items,
        codes=_most_common_codes(count_retry_codes(again)),
        decisions=[
            {
                "seq": verdict.seq,
                "attempt": verdict.attempts,
                "delay_s": round(verdict.delay or 0, 2),
                "code": verdict.code,
            }
            for verdict in again[:MAX_EVENT_DECISIONS]
        ],
    )


def _emit_batch_completed(lease: Lease, turn: _BatchProgress) -> None:
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


def _most_common_codes(codes: Counter[str]) -> dict[str, int]:
    return dict(codes.most_common(MAX_EVENT_CODES))
