"""Every event that Tidemill tells of, by name. A failing subscriber never hurts the engine.

Beside its own fields an event carries what is bound where it is told: worker, child, job, kind, batch, request_id,
traceparent. See docs/telemetry.md.

name                 fields                                     when
job.submitted        job, kind                                  a job is durable
job.paused           job                                        nothing further of it is started
job.resumed          job                                        it goes on
job.cancelled        job                                        it is to be cancelled; what is in hand finishes
job.reprocessed      job, items                                 settled items of it go round again
items.cancelled      job, items                                 some of its items that waited were cancelled
job.deleted          job, by                                    somebody, by number, has removed it for everybody
job.closed           job, kind, closed_as, duration_ms, rows_per_sec, error_rate, counts  nothing of it is open any more
import.completed     job, resource_type, mode, status, total_records, successful_records, skipped_records,
                     failed_records, duration_ms, rows_per_sec, error_rate  an import is closed
export.completed     job, resource_type, format, total_records, duration_ms, rows_per_sec  rows are in a file, or sent
job.failed           job, reason                                its failure policy tripped, or its source failed
ingest.chunk         job, lo, hi, ms                            a chunk of items is durable
ingest.completed     job, rows, total, defects, duration_ms, rows_per_sec, error_rate  a source is read to its end
ingest.stale         job                                        the right to read a source was lost
ingest.shrunk        job, was, now, reason                      chunks are smaller: slow, pool or errors
batch.claimed        job, kind, batch, size, isolated           a batch is in hand
batch.flushed        job, batch, items, done, not_found, skipped, failed, retried, codes, fill, ms  outcomes are durable
batch.completed      job, batch, rows, successes, failures, not_found, skipped, retried, ms, rows_per_sec  it is settled
batch.stale          job, batch, items                          a flush was refused: the lease was lost
batch.released       job, batch, items                          the rest of a batch went back
batch.split          job, batch, pieces                         a batch was cut, to find an item that cannot be run
batch.swept          job, batch, losses                         an expired lease was taken back
concurrency.changed  kind, was, now, reason                     items at a time: throttled, errors or calm
limiter.taken        limiter, permits, waited_s                 so many calls were let begin since it was last told
limiter.blocked      limiter, key, seconds, refusals            whoever is called refused; nobody begins for so long
limiter.slowed       limiter, key, share                        the rate was halved, to this part of what is declared
limiter.changed      limiter, by, rate, burst, concurrency      an admin changed it for everybody
limiter.unblocked    limiter, key, by                           an admin lifted its block
buffer.high          job, batch, fill                           outcomes wait at 80 % of the buffer or more
item.retry           job, batch, items, codes, decisions        items of a flush will be tried again
item.poison          job, seq                                   an item killed its process three times alone
child.started        child, pid                                 a child process runs
child.stopped        child, pid, cause, returncode, in_hand     a child process stopped as it was told
child.died           child, pid, cause, returncode, in_hand     a child process is no more
slice.ended          job, child, settled, failed, retried, ms, died  a time-slice that somebody asked for is over
worker.started       worker, processes, kinds                   a worker is at work
worker.stopped       worker                                     a worker has stopped as it should
worker.adapted       children                                   what their controllers have come to, for the metrics
queue.sampled        pending, processing, retry_wait, oldest_s  what is open was summed, for the metrics
file.removed         files                                      stored files that nobody needs are gone
file.abandoned       file, error                                one of nobody's stays: the store does not answer
watch.scanned        watch, found, submitted, ms                a source was looked at
watch.submitted      watch, path, size, job                     a file that came by itself has a job
watch.passed         watch, path, state, reason                 a file cannot be taken: gone or rejected
watch.settled        watch, path, state, job, reason            a file is put away: processed or failed
watch.failed         watch, error                               something is wrong with a watch; it is tried again
artifact.gone        dataset, path                              a file that was to be used again is not there any more
service.called       service, status, rows, ms                  a service was asked about so many rows, and answered
service.refused      service, status, rows, after               it said that it is asked too much
service.failed       service, status, rows, code, ms            its answer could not be used, or there was none
store.unavailable    error                                      files cannot be reached; what needs them is tried again
loop.failed          loop, error                                a background loop survived an error
hook.failed          hook, error                                a stop hook of a mill raised
database.retry       verb, attempt, error                       a transaction is run again
database.latency     ms, transactions                           how long transactions took, about once a second
query.slow           verb, ms, threshold_ms                     a transaction took longer than TIDEMILL_SLOW_QUERY_MS
pool.waited          ms                                         no connection was free for so long
page.listed          list, rows, first, last, ms                a page was read, between these places
request.done         request_id, method, route, status, ms      an HTTP request was answered
request.failed       request_id, route, error                   an HTTP request ran into a bug of ours
metrics.served       host, port, path                           Prometheus may ask here
relay.lost           events                                     a child could not hand so many events to its parent
broker.lost          error                                      the broker does not answer; work goes on by polling
broker.found         error                                      it answers again after that error
hints.sent           jobs, hints, dropped, ms                   the broker has hints of the outbox, or nobody wants them
hints.resent         jobs                                       jobs that nobody looked at for long get another hint
hint.heard           job                                        a child was told to look at a job first
hint.dropped         job                                        a hint came for a job that is not to run any more
hint.quarantined     job, reason, bytes                         a message that is no hint, or that the broker refuses
outbox.sampled       depth, oldest_s, quarantined               hints that wait were counted, for the metrics
listen.lost          error                                      the wake-up line broke; polling goes on
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
    """Report the event of a child process to the subscribers of such events. The child has logged it already."""
    _notify_subscribers(_child_event_subscribers, event)


@contextlib.contextmanager
def bind_fields(**fields: Any) -> Iterator[None]:
    """Every event that is told inside carries these fields, also in tasks that are started there.

    A job's own request_id goes before that of the request which is being answered; the latter is kept beside it.
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
