"""Learns the column names of a job's results.

They are stored before the results, in a separate transaction: a flush does not change the job's row.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from msgspec import DecodeError

from tidemill.core.batch import Lease
from tidemill.core.decide import Verdict
from tidemill.core.result_grid import GRID_COLUMNS_MAX, RESULT_COLUMN, list_columns_of_value
from tidemill.store import job_records
from tidemill.store.database import Database, is_transient
from tidemill.store.jsonb import decode_json

MAX_REMEMBERED_JOBS = 1_000  # jobs whose columns a process remembers
COLUMN_STORE_TIMEOUT_S = 1.0
_JSON_OBJECT_START = ord("{")


class LearnedColumns:
    """The known columns of one job, in the order of the results, which ``jsonb`` does not preserve."""

    __slots__ = ("_fresh", "_full", "_job_id", "_known")

    def __init__(self, job_id: UUID, *, full: bool = False) -> None:
        self._job_id = job_id
        self._known: set[str] = set()
        self._fresh: dict[str, None] = {}
        self._full = full

    def learn_from_result(self, result: Any, encoded: bytes) -> None:
        """Learn the columns of a result. This runs for every item, so known columns must cost almost nothing."""
        if type(result) is dict:
            if result.keys() <= self._known:
                return
        elif RESULT_COLUMN in self._known and encoded[0] != _JSON_OBJECT_START:
            return
        if not self._full:
            self._learn_from_encoded_result(encoded)

    def learn_from_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Learn from encoded results."""
        for verdict in verdicts:
            if verdict.result is not None and not self._full:
                with contextlib.suppress(DecodeError):  # the flush rejects it
                    self._learn_from_encoded_result(verdict.result)

    async def store_new_columns(self, db: Database) -> None:
        """Store new columns. Call it before the results are written, outside of their transaction."""
        if self._fresh:
            names = list(self._fresh)
            self._mark_stored(names, await db.run_async_commit(job_records.add_result_columns, self._job_id, names))

    async def store_new_columns_unless_locked(self, db: Database) -> None:
        """Store new columns while a batch is locked; give up soon, as the holder of the job's lock may wait for it."""
        if self._fresh:
            names = list(self._fresh)
            try:
                async with db.transaction(durable=False, statement_timeout_s=COLUMN_STORE_TIMEOUT_S) as conn:
                    stored = await job_records.add_result_columns(conn, self._job_id, names)
            except Exception as error:
                if not is_transient(error):
                    raise
            else:
                self._mark_stored(names, stored)

    def _learn_from_encoded_result(self, encoded: bytes) -> None:
        value = decode_json(encoded)
        for name in list_columns_of_value(value) if isinstance(value, dict) else (RESULT_COLUMN,):
            if name not in self._known and len(self._fresh) < GRID_COLUMNS_MAX:
                self._fresh[name] = None

    def _mark_stored(self, names: list[str], columns: list[str] | None) -> None:
        self._full = columns is None or len(columns) >= GRID_COLUMNS_MAX  # None: the job was deleted
        self._known.update(columns or (), names)
        for name in names:
            self._fresh.pop(name, None)


class LearnedColumnsCache:
    """The columns of the jobs that this process ran most recently."""

    def __init__(self) -> None:
        self._columns_by_job: OrderedDict[UUID, LearnedColumns] = OrderedDict()

    def get_for_lease(self, lease: Lease) -> LearnedColumns:
        if lease.sparse:  # done items leave no result
            return LearnedColumns(lease.job_id, full=True)
        columns = self._columns_by_job.setdefault(lease.job_id, LearnedColumns(lease.job_id))
        self._columns_by_job.move_to_end(lease.job_id)
        if len(self._columns_by_job) > MAX_REMEMBERED_JOBS:
            self._columns_by_job.popitem(last=False)
        return columns
