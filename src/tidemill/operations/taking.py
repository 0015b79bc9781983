"""One file of a watch: fetched, looked at, submitted. Whoever dies in between, the next one goes on."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import msgspec

from tidemill.config import Settings
from tidemill.connectors.blobs import Blob, Blobs
from tidemill.connectors.detect import describe
from tidemill.connectors.inlets import Bounds, Inlet
from tidemill.domain.errors import (
    Interrupted,
    InvalidInput,
    KeyReused,
    StoreDenied,
    StoreUnavailable,
    TooLarge,
    UnknownFile,
    UnknownResource,
    Unreachable,
)
from tidemill.domain.importing import KIND
from tidemill.domain.resource import Resource, may
from tidemill.domain.watching import FileState, ImportTask, JobTask, LinksAddress, Watch, WatchFile
from tidemill.domain.watching.decide import idem_key
from tidemill.operations.imports import Importing
from tidemill.operations.incoming import Incoming
from tidemill.operations.resources import Resources
from tidemill.operations.services import KINDS, ServiceJobs, check_columns
from tidemill.operations.submit import as_declared, calls_service, check, submit
from tidemill.store import users, watch_files
from tidemill.store.database import Database
from tidemill.store.submit import Submission, find_by_key
from tidemill.store.users import User
from tidemill.telemetry.events import emit

CHANGED = "it changed while it was read: it is taken when it has stopped changing"
TAKING = (FileState.SEEN, FileState.TAKEN)


IN_A_ROW = 3  # files that cannot be had, one after the other: it is not the files


@dataclass(frozen=True, slots=True)
class Took:
    """How many files became jobs, what was wrong, and whether there are more to take at once."""

    submitted: int = 0
    problem: str | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """What is to become of the files of a watch: for whom, and into what."""

    watch: Watch
    owner: User
    spec: Submission
    resource: Resource | None


class Taker:
    """Makes jobs of files, for the owners of watches and with their rights."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        blobs: Blobs,
        importing: Importing,
        resources: Resources,
        services: ServiceJobs,
    ) -> None:
        self._db = db
        self._settings = settings
        self._blobs = blobs
        self._incoming = Incoming(db, blobs)
        self._importing = importing
        self._resources = resources
        self._services = services

    async def prepare(self, watch: Watch) -> Order:
        """All that can be wrong with a watch and not with a file, before any file is taken.

        Raises:
            UnknownUser, UnknownResource, UnknownKind, InvalidInput: What is.
        """
        owner = await self._db.run(users.find, watch.owner)
        base = Submission(
            kind=KIND,
            owner_id=owner.id,
            policy=dict(watch.policy),
            priority=watch.priority,
            batch_size=self._settings.claim_max,
        )
        if isinstance(watch.task, ImportTask):
            return Order(watch, owner, base, await self._writable(owner, watch.task.resource))
        spec = replace(base, kind=watch.task.kind, params=dict(watch.task.params))
        if await calls_service(self._db, spec):
            spec = self._services.prepare(spec, owner.role)
            check(spec, built_in=True)
            return Order(watch, owner, spec, None)
        check(spec)
        return Order(watch, owner, await as_declared(self._db, spec), None)

    async def take_all(self, order: Order, inlet: Inlet, files: Sequence[WatchFile], bounds: Bounds) -> Took:
        """One after the other. One that cannot be read now waits, and the others go on; several in a row are enough."""
        submitted, in_a_row, problem = 0, 0, None
        for file in files:
            if not bounds.going_on():
                return Took(submitted, problem, more=True)
            try:
                submitted += await self.take(order, inlet, file, bounds) is not None
                in_a_row = 0
            except Interrupted:  # it stays taken: the next scan goes on with it
                return Took(submitted, problem, more=True)
            except (StoreDenied, StoreUnavailable, Unreachable, OSError) as error:
                await self._db.run(watch_files.wait_again, file, file.entry, f"it cannot be read now: {error}")
                problem, in_a_row = problem or f"{file.path} cannot be read: {error}", in_a_row + 1
                if in_a_row >= IN_A_ROW:
                    break
        return Took(submitted, problem)

    async def take(self, order: Order, inlet: Inlet, file: WatchFile, bounds: Bounds) -> UUID | None:
        """The job of the file, or None: then its row says why. A job that is there already is found by its key."""
        made = await self._db.run(find_by_key, file.owner_id or order.owner.id, idem_key(file))
        if made is not None:
            await self._db.run(watch_files.submit, file, made["id"])
            return UUID(str(made["id"]))
        name = uuid4().hex  # never one of a try before, which may be another's by now
        if not await self._db.run(watch_files.take, file, order.owner.id, name):
            return None
        try:
            blob = await asyncio.to_thread(inlet.fetch, file.entry, self._blobs, name, bounds)
        except UnknownFile:
            if await asyncio.to_thread(inlet.look, file.path) is not None:  # FTP has one word for both
                raise StoreDenied("it is there, and not for us") from None
            await self._set(file, FileState.GONE, "it vanished before it was taken")
            return None
        except (TooLarge, InvalidInput) as error:
            await self._set(file, FileState.REJECTED, str(error))
            return None
        if not await self._is_same(inlet, file, blob):
            await self._incoming.drop(name)
            return None
        return await self._submit(order, file, blob)

    async def _is_same(self, inlet: Inlet, file: WatchFile, blob: Blob) -> bool:
        """What came is what was listed, and still there as it was: else it was being written."""
        now = await asyncio.to_thread(inlet.look, file.path)
        if now is None:
            await self._set(file, FileState.GONE, "it vanished while it was read")
            return False
        if now.version == file.version and now.size in (None, file.size) and file.size in (None, blob.size):
            return True
        await self._db.run(watch_files.wait_again, file, now, CHANGED)
        return False

    async def _submit(self, order: Order, file: WatchFile, blob: Blob) -> UUID | None:
        try:
            job_id = await self._job(order, file, blob)
        except (InvalidInput, TooLarge) as error:
            await self._incoming.drop(blob.id)
            await self._set(file, FileState.REJECTED, str(error))
            return None
        except KeyReused:  # somebody was quicker, with other words: the declaration has changed meanwhile
            made = await self._db.run(find_by_key, order.owner.id, idem_key(file))
            if made is None:
                raise
            job_id = UUID(str(made["id"]))
        await self._db.run(watch_files.submit, file, job_id)
        emit("watch.submitted", watch=file.watch, path=file.path, size=file.size, job=job_id)
        return job_id

    async def _job(self, order: Order, file: WatchFile, blob: Blob) -> UUID:
        if not blob.size:
            raise InvalidInput("the file is empty")
        name = name_of(order.watch, file.path)
        spec = replace(order.spec, idem_key=idem_key(file))
        layout, task = dict(order.watch.layout), order.watch.task
        if isinstance(task, JobTask):
            found = await self._layout(spec, blob.id, name, layout)
            source = {"blob": blob.id, "format": found["format"], "layout": found, "name": name}
            spec = replace(spec, source=source, file_id=blob.id, idem_print=blob.sha256)
            job_id, is_new = await submit(self._db, spec, built_in=spec.kind in KINDS)
            if not is_new:
                await self._incoming.drop(blob.id)
            return job_id
        if task.request.keep_empty:
            layout |= {"keep_empty": True}
        look = await self._importing.look(blob.id, name=name, given=layout)
        assert order.resource is not None  # noqa: S101  of every import
        plan = await self._importing.plan(look, order.resource, task.request)
        words = _words(order.watch, task, file, layout)
        return (await self._importing.submit(spec, blob, look, plan, words, name))[0]

    async def _layout(self, spec: Submission, blob_id: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """How the file is read; of kinds that call services, also whether it has the columns that they ask for."""
        if spec.kind not in KINDS:
            return await asyncio.to_thread(self._describe, blob_id, name, given)
        look = await self._importing.look(blob_id, name=name, given=given)
        check_columns(spec, () if look.named_by_rows else look.columns)
        return dict(look.layout)

    def _describe(self, blob_id: str, name: str, layout: Mapping[str, Any]) -> dict[str, Any]:
        with self._blobs.open(blob_id) as file:
            return describe(file, name=name, given=dict(layout))

    async def _writable(self, owner: User, name: str) -> Resource:
        """As over HTTP: an admin may name any table, others what is declared and granted."""
        resource = await self._resources.find(self._db, name, any_table=owner.role == "admin")
        if not may(owner.role, resource, "write"):
            raise UnknownResource(f"{owner.name} may not write {name}")
        return resource

    async def _set(self, file: WatchFile, state: FileState, why: str) -> None:
        await self._db.run(watch_files.set_state, file, state, why, before=TAKING)
        emit("watch.passed", watch=file.watch, path=file.path, state=state, reason=why)


def name_of(watch: Watch, path: str) -> str:
    """What the file is called; of the web, without the mark that tells two of one name apart."""
    path = path.partition("#")[0] if isinstance(watch.source, LinksAddress) else path
    return path.rpartition("/")[2]


def _words(watch: Watch, task: ImportTask, file: WatchFile, layout: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, in the shape that requests have, and where the file came from."""
    return {
        "resource": task.resource,
        "layout": dict(layout),
        "policy": dict(watch.policy),
        "priority": watch.priority,
        **msgspec.to_builtins(task.request),
        "key": list(task.request.key),
        "source": {"watch": watch.name, "path": file.path},
    }
