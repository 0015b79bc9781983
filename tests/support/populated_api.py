"""An API with jobs, files and users of every type, for tests that do not run in its event loop."""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from anyio.from_thread import BlockingPortal, start_blocking_portal

from support import FAILED, add_job, rows, settle, take, try_take, verdict
from support.api import Api, opened, share_with_users
from support.import_requests import CSV_TYPE, MIXED, TABLES, declare
from tidemill import Item, Mill
from tidemill.config import Settings
from tidemill.core.job import TimeSliceResult
from tidemill.core.principal import LOCAL_USER_ID, Role
from tidemill.limits import limiter_records
from tidemill.limits.config import parse_limiters as declared
from tidemill.store import job_lifecycle, users
from tidemill.store.database import Database
from tidemill.telemetry.metrics import MetricsSubscriber
from tidemill.testing import drain

INPUTS: list[Any] = [{"fail": "x"}, {"sku": "A-1", "title": "a"}, 7, None]
CSV = "sku,name\n1,one\n2,two\n"
LETTERS = {"dataset": "letters", "inputs": [{"first_name": "Ada", "sent_on": 20240202}]}
ADD_MAPPING = """
INSERT INTO tidemill.import_mapping (owner_id, resource, fingerprint, columns, options, job_id, job_key)
VALUES (%s, 'people', int4send(%s), '["email"]', '{}', tidemill.new_id(), 'J20261115_000001') RETURNING id
"""
ADD_HELD_FILE = """
INSERT INTO tidemill.watch_file (watch, source, path, version, state)
VALUES ('letters', 'letters', %s, '1', 'held') RETURNING id
"""
ADD_OPERATION = """
INSERT INTO tidemill.operation (id, verb, predicate, user_id)
VALUES (tidemill.new_id(), 'cancel', '{}', %s) RETURNING id
"""
UNLIMITED = {"rate_limit_per_s": 10**6, "rate_limit_burst": 10**6}


@dataclass
class Things:
    """The names and ids of existing objects, by path parameter. The user ada owns all of them."""

    job: list[str]
    export: list[str]
    operation_id: list[str]
    import_id: list[str]
    distribution_id: list[str]
    name: list[str] = field(default_factory=lambda: ["ada", "grete"])
    source_name: list[str] = field(default_factory=lambda: ["letters"])
    limiter: list[str] = field(default_factory=lambda: ["shop"])
    seq: list[int] = field(default_factory=lambda: list(range(len(INPUTS))))


class Hands:
    """An on-demand pool that runs kickoff requests in the process of the API."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def kickoff(self, job_id: UUID, kind: str, seconds: float, *, user_id: int) -> TimeSliceResult:  # noqa: ARG002
        async with Database(self._url, size=1) as db:
            lease = await try_take(db, job_id, worker=f"hands for {kind}")
            if lease is not None:
                await settle(db, lease)
        return TimeSliceResult(3, 0, 0, seconds, is_drained=True, next_due_at=None, due_in=None)


class Place:
    """The API, its existing objects, and methods that create more."""

    def __init__(self, portal: BlockingPortal, api: Api, things: Things) -> None:
        self.api = api
        self.things = things
        self.people = [{"Authorization": f"Bearer {api.keys[name]}"} for name in ("ada", "grete")]
        self._portal = portal
        self._numbers = itertools.count()

    def job(self, *, is_paused: bool = False, is_failed: bool = False) -> str:
        return self._portal.call(self._job, is_paused, is_failed)

    def trial(self, *, is_paused: bool = False, is_done: bool = False) -> str:
        """Submit a dry run of an import, and return its id."""
        return self._portal.call(self._trial, is_paused, is_done)

    def undoable(self) -> str:
        """Run an import that keeps the data to undo it, and return its id."""
        return self._portal.call(self._undoable)

    def export(self) -> str:
        """Submit an export that no worker has run, and return its id."""
        return self._portal.call(self._export)

    def distribution(self) -> str:
        return self._portal.call(self._distribution)

    def user(self) -> str:
        return str(self._run(users.add_user, f"carl {next(self._numbers)}", Role.USER).name)

    def prefix(self) -> str:
        return str(self._run(users.add_key, self.api.ids["ada"])[1].prefix)

    def link(self) -> str:
        return str(self._run(users.create_sign_in_token, LOCAL_USER_ID, 60))

    def mapping_id(self) -> int:
        """Insert a remembered mapping of ada, and return its id."""
        return int(self._insert(ADD_MAPPING, self.api.ids["ada"], next(self._numbers)))

    def file_id(self) -> int:
        """Insert a file of the watch that is held, and return its id."""
        return int(self._insert(ADD_HELD_FILE, f"file {next(self._numbers)}"))

    def operation(self) -> str:
        """Insert an operation of ada that no process continues. Return its id."""
        return str(self._insert(ADD_OPERATION, self.api.ids["ada"]))

    def _insert(self, statement: str, *values: Any) -> Any:
        async def insert() -> Any:
            return (await rows(self.api.db, statement, *values))[0][0]

        return self._portal.call(insert)

    def _run(self, verb: Any, *args: Any) -> Any:
        return self._portal.call(self.api.db.run, verb, *args)

    async def _export(self) -> str:
        answer = await (await self.api.user("ada")).post("/v1/exports", json={"resource": "people"})
        return str(answer.json()["job_id"])

    async def _trial(self, is_paused: bool, is_done: bool) -> str:
        ada = await self.api.user("ada")
        words: dict[str, str | bool] = {"resource": "people", "validate_only": True}
        answer = await ada.post("/v1/imports", params=words, content=MIXED, headers=CSV_TYPE)
        job_id = str(answer.json()["job_id"])
        if is_paused:
            await ada.post(f"/v1/imports/{job_id}/pause")
        if is_done:
            await drain(Mill(self.api.settings), db=self.api.db)
        return job_id

    async def _undoable(self) -> str:
        words: dict[str, str | bool] = {"resource": "people", "mode": "upsert", "undo": True}
        content = f"email,name\nrow{next(self._numbers)}@x.org,New\n".encode()
        answer = await (await self.api.user("ada")).post("/v1/imports", params=words, content=content, headers=CSV_TYPE)
        await drain(Mill(self.api.settings), db=self.api.db)
        return str(answer.json()["job_id"])

    async def _distribution(self) -> str:
        ada = await self.api.user("ada")
        return str((await ada.post("/v1/distributions", json=LETTERS)).json()["job_id"])

    async def _job(self, is_paused: bool, is_failed: bool) -> str:
        job_id = await add_job(self.api.db, 4, "echo", owner_id=self.api.ids["ada"])
        if is_paused:
            await self.api.db.run(job_lifecycle.pause_job, job_id)
        if is_failed:
            lease = await take(self.api.db, job_id)
            await settle(self.api.db, lease, [verdict(seq, FAILED) for seq in range(4)])
        return str(job_id)


@contextmanager
def furnished(url: str, home: Path) -> Iterator[Place]:
    inbox = home / "inbox"
    inbox.mkdir()
    (inbox / "prices.csv").write_text(CSV)
    (inbox / "people.csv").write_bytes(MIXED)
    settings = Settings(database_url=url, home=home, sources={"inbox": share_with_users(inbox)}, config=declare(home))
    settings = settings.model_copy(update=UNLIMITED)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_opened(settings)) as found:
        yield Place(portal, *found)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Api, Things]]:
    mill = Mill(settings)

    @mill.handler("echo", max_attempts=2, backoff=0.01)
    async def echo(item: Item) -> Any:
        if isinstance(item.input, dict) and "fail" in item.input:
            raise ValueError(str(item.input["fail"]))
        return item.input

    hands, meter = Hands(str(settings.database_url)), MetricsSubscriber()
    async with opened(settings, mill, on_demand_pool=hands, meter=meter) as api:
        await api.user("grete", Role.ADMIN)
        await rows(api.db, TABLES)
        yield api, await _fill(api, mill)


async def _fill(api: Api, mill: Mill) -> Things:
    """Create jobs in every stable status, with failed items, and exports with and without a finished file."""
    ada = await api.user("ada")
    await api.db.run(
        limiter_records.declare_limiters, declared({"limiters": {"shop": {"rate": "5/s", "burst": 10}}}).values()
    )

    async def made(path: str, **asked: Any) -> str:
        answer = await ada.post(path, **asked)
        assert answer.status_code in (200, 202), answer.text
        return str(answer.json().get("id") or answer.json()["job_id"])

    finished = [await made("/v1/jobs", json={"kind": "echo", "inputs": INPUTS}) for _ in range(2)]
    await drain(mill, db=api.db)
    exports = [await made(f"/v1/jobs/{finished[0]}/export?format={name}") for name in ("csv", "xlsx", "ndjson")]
    await drain(mill, db=api.db)
    exports.append(await made(f"/v1/jobs/{finished[1]}/export?format=csv"))
    operation = await made(f"/v1/jobs/{finished[1]}/reprocess", json={"statuses": ["done"]})
    waiting, paused, cancelled = [await made("/v1/jobs", json={"kind": "echo", "inputs": INPUTS}) for _ in range(3)]
    await ada.post(f"/v1/jobs/{paused}/pause")
    await ada.post(f"/v1/jobs/{cancelled}/cancel")
    upload = await made("/v1/jobs?kind=echo", content=CSV.encode(), headers={"content-type": "text/csv"})
    csv = {"content": MIXED, "headers": CSV_TYPE}
    imports = [await made(f"/v1/imports?resource=people&mode=upsert{more}", **csv) for more in ("", "&validate_only=1")]
    await drain(mill, db=api.db)
    imports.append(await made("/v1/imports?resource=people", **csv))
    distributions = [await made("/v1/distributions", json=LETTERS)]
    await drain(mill, db=api.db)
    distributions.append(await made("/v1/distributions", json=LETTERS | {"reuse": {"enabled": False}}))
    jobs_ = [*finished, waiting, paused, cancelled, upload]
    return Things(job=jobs_, export=exports, operation_id=[operation], import_id=imports, distribution_id=distributions)
