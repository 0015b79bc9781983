"""A mill with declared services, and helpers to submit rows and read their outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from support import assert_sound, job_of, rows
from tidemill import Mill
from tidemill.config import Settings
from tidemill.core.job import Job
from tidemill.core.status import ItemStatus
from tidemill.jobs import job_control
from tidemill.jobs.reprocessing import reprocess_items
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.testing import drain


@dataclass
class Row:
    """The outcome of a row."""

    status: str
    attempts: int
    result: dict[str, Any]
    error: dict[str, Any]


class Scene:
    def __init__(self, db: Database, settings: Settings) -> None:
        self.db = db
        self.settings = settings.model_copy(update={"config": settings.home / "tidemill.toml"})
        self._services: dict[str, dict[str, Any]] = {}
        self.limiters = ""  # TOML text

    def declare(self, name: str, url: str, **options: Any) -> None:
        """Declare a service on the loopback interface."""
        self._services[name] = {"url": url, "allow_private": True, "batch": 10, "use": ["user"]} | options
        assert self.settings.config is not None
        tables = [_table(name, inner) for name, inner in self._services.items()]
        self.settings.config.write_text("\n".join([*tables, self.limiters]))

    async def submit(self, inputs: Sequence[Any], kind: str = "match", **params: Any) -> UUID:
        given = {"service": "names", "query": "name"} if kind == "match" else {"service": "shop"}
        return await Mill(self.settings).submit_async(kind, inputs, params=given | params)

    async def drain(self, *, retries: bool = True) -> None:
        await drain(Mill(self.settings), retries=retries, db=self.db)

    async def run(self, inputs: Sequence[Any], kind: str = "match", **params: Any) -> list[Row]:
        """Submit the rows, process them and return their outcomes."""
        job_id = await self.submit(inputs, kind, **params)
        await self.drain()
        await assert_sound(self.db, job_id)
        assert (await self.job(job_id)).is_closed
        return await self.rows(job_id)

    async def match(self, names: Sequence[str], **params: Any) -> list[Row]:
        return await self.run([{"name": name} for name in names], **params)

    async def rows(self, job_id: UUID) -> list[Row]:
        query = "SELECT status, attempts, result, error FROM tidemill.outcome WHERE job_id = %s ORDER BY seq"
        return [
            Row(status, n, result or {}, error or {}) for status, n, result, error in await rows(self.db, query, job_id)
        ]

    async def due_in(self, job_id: UUID) -> float:
        """Return the seconds until the first waiting batch is due."""
        query = "SELECT extract(epoch FROM min(not_before) - tidemill.now()) FROM tidemill.batch WHERE job_id = %s"
        return float((await rows(self.db, query + " AND state = 'ready'", job_id))[0][0])

    async def reprocess(self, job_id: UUID) -> None:
        await reprocess_items(self.db, job_id, ReprocessSelection(statuses=[ItemStatus.NOT_FOUND, ItemStatus.FAILED]))

    async def cancel(self, job_id: UUID) -> None:
        await job_control.cancel_job(self.db, job_id)

    async def delete(self, job_id: UUID) -> None:
        await job_control.delete_job(self.db, job_id)

    async def is_anywhere(self, word: str) -> bool:
        """Return whether a word is stored in any job or outcome."""
        query = "SELECT string_agg(j::text, '') FROM tidemill.job j"
        outcomes = "SELECT string_agg(o::text, '') FROM tidemill.outcome o"
        return word in str([await rows(self.db, one) for one in (query, outcomes)])

    async def job(self, job_id: UUID) -> Job:
        return await job_of(self.db, job_id)


def _table(name: str, inner: dict[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in inner.items()]
    return "\n".join([f"[services.{name}]", *lines, ""])


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{', '.join(_value(one) for one in value)}]"
        case str():
            return f'"{value}"'
        case _:
            return str(value)
