"""Learning which columns the results of a job have.

They are stored before the results are, never with them: a flush does not touch the job's row.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from msgspec import DecodeError

from tidemill.domain.batch import Lease
from tidemill.domain.columns import MAX_COLUMNS, RESULT, names_in
from tidemill.domain.decide import Verdict
from tidemill.store import results
from tidemill.store.database import Database, is_transient
from tidemill.store.json import decode

MAX_JOBS = 1_000  # jobs whose columns a process remembers
PATIENCE_S = 1.0
_OBJECT = ord("{")


class JobColumns:
    """What this process knows of one job's columns. ``jsonb`` forgets the order of keys: only here it is known."""

    __slots__ = ("_fresh", "_full", "_job_id", "_known")

    def __init__(self, job_id: UUID, *, full: bool = False) -> None:
        self._job_id = job_id
        self._known: set[str] = set()
        self._fresh: dict[str, None] = {}
        self._full = full

    def see(self, result: Any, encoded: bytes) -> None:
        """Look at a result; called for every item, so that what is known must cost next to nothing."""
        if type(result) is dict:
            if result.keys() <= self._known:
                return
        elif RESULT in self._known and encoded[0] != _OBJECT:
            return
        if not self._full:
            self._see_encoded(encoded)

    def see_all(self, verdicts: Iterable[Verdict]) -> None:
        """The same for results of which only the encoded form is left."""
        for verdict in verdicts:
            if verdict.result is not None and not self._full:
                with contextlib.suppress(DecodeError):  # whoever encoded it by himself: the flush will refuse it
                    self._see_encoded(verdict.result)

    async def store(self, db: Database) -> None:
        """Store what is new. To be called before the results are written, in no transaction of the caller's."""
        if self._fresh:
            names = list(self._fresh)
            self._stored(names, await db.run(results.learn, self._job_id, names))

    async def try_to_store(self, db: Database) -> None:
        """The same while a batch is held. Whoever has the job's lock may wait for that batch: do not wait for long."""
        if self._fresh:
            names = list(self._fresh)
            try:
                async with db.transaction(durable=False, seconds=PATIENCE_S) as conn:
                    stored = await results.learn(conn, self._job_id, names)
            except Exception as error:
                if not is_transient(error):
                    raise
            else:
                self._stored(names, stored)

    def _see_encoded(self, encoded: bytes) -> None:
        for name in names_in(decode(encoded)):
            if name not in self._known and len(self._fresh) < MAX_COLUMNS:
                self._fresh[name] = None

    def _stored(self, names: list[str], columns: list[str] | None) -> None:
        self._full = columns is None or len(columns) >= MAX_COLUMNS  # None: the job is gone
        self._known.update(columns or (), names)
        for name in names:
            self._fresh.pop(name, None)


class ColumnsByJob:
    """Of the jobs that were worked on last."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[UUID, JobColumns] = OrderedDict()

    def of(self, lease: Lease) -> JobColumns:
        if lease.sparse:  # what is done leaves no result
            return JobColumns(lease.job_id, full=True)
        columns = self._jobs.setdefault(lease.job_id, JobColumns(lease.job_id))
        self._jobs.move_to_end(lease.job_id)
        if len(self._jobs) > MAX_JOBS:
            self._jobs.popitem(last=False)
        return columns
