"""Every event that Tidemill tells of, by name. A failing subscriber never hurts the engine.

name                 fields                                     when
job.submitted        job, kind                                  a job is durable
job.closed           job, closed_as                             nothing of it is open any more
job.failed           job, reason                                its failure policy tripped, or its source failed
ingest.chunk         job, lo, hi, ms                            a chunk of items is durable
ingest.stale         job                                        the right to read a source was lost
batch.claimed        job, batch, size, isolated                 a batch is in hand
batch.flushed        job, batch, items, failed, retried, ms     outcomes are durable
batch.stale          job, batch, items                          a flush was refused: the lease was lost
batch.released       job, batch, items                          the rest of a batch went back
batch.swept          job, batch, losses                         an expired lease was taken back
buffer.high          job, batch, fill                           outcomes wait at 80 % of the buffer or more
child.started        child, pid                                 a child process runs
child.stopped        child, pid, cause, returncode, in_hand     a child process stopped as it was told
child.died           child, pid, cause, returncode, in_hand     a child process is no more
item.poison          job, seq                                   an item killed its process three times alone
worker.started       worker, processes, kinds                   a worker is at work
worker.stopped       worker                                     a worker has stopped as it should
loop.failed          loop, error                                a background loop survived an error
database.retry       verb, attempt, error                       a transaction is run again
page.listed          list, rows, ms, first, last                a page of a list was read; first and last are its bounds
listen.lost          error                                      the wake-up line broke; polling goes on
"""

import contextlib
from collections.abc import Callable
from typing import Any

Subscriber = Callable[[str, dict[str, Any]], None]
_subscribers: list[Subscriber] = []


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Hear every event; the returned function ends it."""
    _subscribers.append(subscriber)

    def unsubscribe() -> None:
        with contextlib.suppress(ValueError):
            _subscribers.remove(subscriber)

    return unsubscribe


def emit(name: str, /, **fields: Any) -> None:
    """Tell of an event, after what it tells of is durable."""
    for subscriber in tuple(_subscribers):
        with contextlib.suppress(Exception):
            subscriber(name, fields)
