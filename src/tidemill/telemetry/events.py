"""The events that Tidemill emits. A failing subscriber never affects the engine.

In addition to its own fields, an event has the fields that are bound where it is emitted: worker, child, job, kind,
batch, request_id, traceparent. See docs/reference/telemetry.md.

name                 fields                                     when
job.submitted        job, kind                                  a job was submitted and is durable
job.paused           job                                        a job was paused; no further items start
job.resumed          job                                        a paused job was resumed
job.cancelled        job                                        cancellation was requested; running items finish first
job.reprocessed      job, items                                 settled items of a job were requeued
items.cancelled      job, items                                 waiting items of a job were cancelled
job.deleted          job, by                                    a user deleted a job; `by` is the user's ID
job.closed           job, kind, closed_as, duration_ms, rows_per_sec, error_rate, counts  a job was closed
import.completed     job, resource_type, mode, status, total_records, successful_records, skipped_records,
                     failed_records, duration_ms, rows_per_sec, error_rate  an import was closed
export.completed     job, resource_type, format, total_records, duration_ms, rows_per_sec  rows were exported
export.failed        job, attempt, error                        an attempt to write the file of an export failed
job.failed           job, reason                                a job failed by its policy or its source
ingest.chunk         job, lo, hi, ms                            a chunk of items is durable
ingest.completed     job, rows, total, defects, duration_ms, rows_per_sec, error_rate  a source was read to its end
ingest.stale         job                                        the ingest lease was lost
ingest.shrunk        job, was, now, reason                      chunks are smaller: slow, pool or errors
batch.claimed        job, kind, batch, size, isolated           a worker claimed a batch
batch.flushed        job, batch, items, done, not_found, skipped, failed, retried, codes, fill, ms  outcomes are durable
batch.completed      job, batch, rows, successes, failures, not_found, skipped, retried, ms, rows_per_sec  batch settled
batch.stale          job, batch, items                          a flush was rejected: the lease was lost
batch.released       job, batch, items                          the unsettled items of a batch were released
batch.split          job, batch, pieces                         a batch was split to find a failing item
batch.disconnected   job, batch, items, losses, error           the transaction of a batch ended its connection
batch.swept          job, batch, losses                         an expired lease was reclaimed
concurrency.changed  kind, was, now, reason                     concurrency changed: throttled, errors or calm
limiter.taken        limiter, permits, waited_s                 permits granted since the last report
limiter.blocked      limiter, key, seconds, refusals            calls were throttled; no call starts for `seconds`
limiter.slowed       limiter, key, share                        the rate was halved, to this share of the declared
limiter.changed      limiter, by, rate, burst, concurrency      an admin changed a limiter
limiter.unblocked    limiter, key, by                           an admin unblocked a limiter
buffer.high          job, batch, fill                           the buffer of outcomes is at least 80 % full
item.retry           job, batch, items, codes, decisions        items of a flush will be retried
handler.failed       job, batch, seq, attempt, status, type, traceback, suppressed  a handler raised (once per minute)
item.poison          job, seq                                   an item broke its process, connection or worker
child.started        child, pid                                 a child process started
child.stopped        child, pid, cause, returncode, in_hand     a child process stopped on request
child.died           child, pid, cause, returncode, in_hand     a child process died
slice.ended          job, child, settled, failed, retried, ms, died  a requested time slice ended
worker.started       worker, processes, kinds, on_demand        a worker started; `on_demand`: only for kickoff requests
worker.stopped       worker, on_demand                          a worker stopped normally
worker.adapted       children                                   the adaptive state of the children, for the metrics
queue.sampled        pending, processing, retry_wait, oldest_s  open items were counted, for the metrics
file.removed         files                                      unneeded stored files were removed
file.abandoned       file, error                                an unneeded file could not be removed
watch.scanned        watch, found, submitted, ms                a watch source was scanned
watch.submitted      watch, path, size, job                     a job was submitted for a file
watch.passed         watch, path, state, reason                 a file was not submitted: gone or rejected
watch.settled        watch, path, state, job, reason            a file was moved: processed or failed
watch.failed         watch, error                               a watch failed; it is retried
artifact.gone        dataset, path                              a file to be reused does not exist any more
service.called       service, status, rows, ms                  an external service returned a valid response
service.refused      service, status, rows, after               an external service throttled a request
service.failed       service, status, rows, code, ms            a call failed or its response was invalid
store.unavailable    error                                      the file store is unavailable; work is retried
loop.failed          loop, error                                a tick of a background loop failed
clock.rewound        seconds                                    the clock of the database was set back
migration.blocked    seconds_left, error                        a migration waits for the lock of a table
hook.failed          hook, error                                a stop hook of a mill raised
database.retry       verb, attempt, error                       a transaction is retried
database.latency     ms, transactions                           the mean time of transactions, about every second
postgres.lost        folder, attempt                            the embedded server has died; it is restarted
postgres.restarted   folder, attempt                            the embedded server accepts connections again
postgres.failed      folder, attempt, error                     the embedded server did not start again
postgres.abandoned   folder, restarts                           the embedded server died too often; no further restarts
query.slow           verb, ms, threshold_ms                     a transaction exceeded TIDEMILL_SLOW_QUERY_MS
pool.waited          ms                                         a transaction waited `ms` for a connection
page.listed          list, rows, first, last, ms                a page of a list was read, between these cursors
request.done         request_id, method, route, status, ms, complete  an HTTP request was answered
response.aborted     request_id, route, status, reason          a response ended early: slow client, lost database
request.failed       request_id, route, error                   an HTTP request failed with an unexpected error
metrics.served       host, port, path                           the metrics endpoint is ready
relay.lost           events                                     a child could not send events to its parent
broker.lost          error                                      the broker does not respond; polling continues
broker.found         error                                      the broker responds again after that error
hints.sent           jobs, hints, dropped, ms                   hints of the outbox were sent or dropped
hints.resent         jobs                                       hints were sent again for jobs without progress
hint.heard           job                                        a child received a hint about a job
hint.dropped         job                                        a hint was for a job that may not run any more
hint.quarantined     job, reason, bytes                         a message is invalid, or the broker rejects it
outbox.sampled       depth, oldest_s, quarantined               waiting hints were counted, for the metrics
listen.lost          error                                      the LISTEN connection broke; polling continues
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple


class Event(NamedTuple):
    """One event: its name, its own fields, and the fields that were bound where it was emitted."""

    name: str
    fields: Mapping[str, Any]


Subscriber = Callable[[Event], object]  # the result is ignored
_subscribers: list[Subscriber] = []
_child_event_subscribers: list[Subscriber] = []
_bound_fields: ContextVar[Mapping[str, Any] | None] = ContextVar("tidemill_bound", default=None)


def subscribe(subscriber: Subscriber, *, children: bool = False) -> Callable[[], None]:
    """Pass every event of this process to ``subscriber``, with ``children`` also the events of child processes.

    Returns a function that ends the subscription.
    """
    lists = (_subscribers, _child_event_subscribers) if children else (_subscribers,)
    for listed in lists:
        listed.append(subscriber)

    def unsubscribe() -> None:
        for listed in lists:
            with contextlib.suppress(ValueError):
                listed.remove(subscriber)

    return unsubscribe


def emit(name: str, /, **fields: Any) -> None:
    """Report an event to the subscribers. Call it after the change that it reports is durable."""
    if _subscribers:
        _notify_subscribers(_subscribers, Event(name, {**(_bound_fields.get() or {}), **fields}))


def publish_child_event(event: Event) -> None:
    """Report the event of a child process to the subscribers of such events. The child has already logged it."""
    _notify_subscribers(_child_event_subscribers, event)


@contextlib.contextmanager
def bind_fields(**fields: Any) -> Iterator[None]:
    """Add these fields to every event emitted inside the context, also in tasks started there.

    A job's request_id replaces that of the current HTTP request, which is kept as ``by_request_id``.
    """
    outer = _bound_fields.get() or {}
    inner = {**outer, **{name: value for name, value in fields.items() if value is not None}}
    if outer.get("request_id") not in (None, inner.get("request_id")):
        inner["by_request_id"] = outer["request_id"]
    token = _bound_fields.set(inner)
    try:
        yield
    finally:
        _bound_fields.reset(token)


def get_bound_fields() -> Mapping[str, Any]:
    return _bound_fields.get() or {}


def _notify_subscribers(subscribers: list[Subscriber], event: Event) -> None:
    for subscriber in tuple(subscribers):
        with contextlib.suppress(Exception):
            subscriber(event)
