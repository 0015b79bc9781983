"""One file of a watch: fetched, looked at, submitted. Whoever dies in between, the next one goes on."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from tidemill.core.errors import (
    IdempotencyKeyReused,
    Interrupted,
    InvalidInput,
    RemoteUnreachable,
    StorageAccessDenied,
    StorageUnavailable,
    TooLarge,
    UnknownFile,
    UnknownResource,
)
from tidemill.core.file_layout import FileLayout
from tidemill.core.json_types import JsonObject
from tidemill.core.kinds import IMPORT_KIND
from tidemill.files.blobs.blob_store import Blob
from tidemill.files.detect import detect_layout
from tidemill.imports.import_submission import ImportFile, ImportOptions
from tidemill.imports.use_cases import make_import_use_cases
from tidemill.jobs.staged_files import make_staged_files
from tidemill.jobs.submission import prepare_submission, submit_file
from tidemill.runtime import Runtime
from tidemill.store import users
from tidemill.store.job_submission import Submission, find_by_idempotency_key
from tidemill.store.users import User
from tidemill.tables.resource import Resource, is_granted
from tidemill.tables.resource_registry import make_resource_registry
from tidemill.telemetry.events import emit
from tidemill.watches import watch_files
from tidemill.watches.file_state import FileState, WatchFile, build_idempotency_key
from tidemill.watches.source_address import WebAddress
from tidemill.watches.sources.watch_source import FetchLimits, WatchSource
from tidemill.watches.watch import ImportTask, JobTask, Watch

CHANGED_WHILE_READ_MESSAGE = "it changed while it was read: it is taken when it has stopped changing"
NOT_SUBMITTED_STATES = (FileState.SEEN, FileState.TAKEN)


CONSECUTIVE_FAILURES_MAX = 3  # files that cannot be had, one after the other: it is not the files


@dataclass(frozen=True, slots=True)
class SubmittedFiles:
    """How many files became jobs, what was wrong, and whether there are more to take at once."""

    submitted: int = 0
    problem: str | None = None
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class WatchJobTemplate:
    """What is to become of the files of a watch: for whom, and into what."""

    watch: Watch
    owner: User
    spec: Submission
    resource: Resource | None


class WatchFileSubmitter:
    """Makes jobs of files, for the owners of watches and with their rights."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._db = runtime.db
        self._settings = runtime.settings
        self._blobs = runtime.blobs
        self._staged_files = runtime.get(make_staged_files)
        self._imports = runtime.get(make_import_use_cases)
        self._resources = runtime.get(make_resource_registry)

    async def prepare_watch(self, watch: Watch) -> WatchJobTemplate:
        """All that can be wrong with a watch and not with a file, before any file is taken.

        Raises:
            UnknownUser, UnknownResource, UnknownKind, InvalidInput: What is.
        """
        owner = await self._db.run(users.get_user, watch.owner)
        base = Submission(
            kind=IMPORT_KIND,
            owner_id=owner.id,
            policy=dict(watch.policy),
            priority=watch.priority,
            batch_size=self._settings.claim_max,
        )
        if isinstance(watch.task, ImportTask):
            return WatchJobTemplate(watch, owner, base, await self._get_writable_resource(owner, watch.task.resource))
        spec = replace(base, kind=watch.task.kind, params=dict(watch.task.params))
        return WatchJobTemplate(watch, owner, await prepare_submission(self._runtime, spec, owner.role), None)

    async def submit_files(
        self, order: WatchJobTemplate, inlet: WatchSource, files: Sequence[WatchFile], bounds: FetchLimits
    ) -> SubmittedFiles:
        """One after the other. One that cannot be read now waits, and the others go on; several in a row are enough."""
        submitted, in_a_row, problem = 0, 0, None
        for file in files:
            if not bounds.should_continue():
                return SubmittedFiles(submitted, problem, has_more=True)
            try:
                submitted += await self.submit_file(order, inlet, file, bounds) is not None
                in_a_row = 0
            except Interrupted:  # it stays taken: the next scan goes on with it
                return SubmittedFiles(submitted, problem, has_more=True)
            except (StorageAccessDenied, StorageUnavailable, RemoteUnreachable, OSError) as error:
                await self._db.run(
                    watch_files.requeue_changed_file, file, file.entry, f"it cannot be read now: {error}"
                )
                problem, in_a_row = problem or f"{file.path} cannot be read: {error}", in_a_row + 1
                if in_a_row >= CONSECUTIVE_FAILURES_MAX:
                    break
        return SubmittedFiles(submitted, problem)

    async def submit_file(
        self, order: WatchJobTemplate, inlet: WatchSource, file: WatchFile, bounds: FetchLimits
    ) -> UUID | None:
        """The job of the file, or None: then its row says why. A job that is there already is found by its key."""
        made = await self._db.run(find_by_idempotency_key, file.owner_id or order.owner.id, build_idempotency_key(file))
        if made is not None:
            await self._db.run(watch_files.mark_file_submitted, file, made["id"])
            return UUID(str(made["id"]))
        name = uuid4().hex  # never one of a try before, which may be another's by now
        if not await self._db.run(watch_files.claim_file, file, order.owner.id, name):
            return None
        try:
            blob = await asyncio.to_thread(inlet.fetch, file.entry, self._blobs, name, bounds)
        except UnknownFile:
            if await asyncio.to_thread(inlet.find_entry, file.path) is not None:  # FTP has one word for both
                raise StorageAccessDenied("it is there, and not for us") from None
            await self._set_state(file, FileState.GONE, "it vanished before it was taken")
            return None
        except (TooLarge, InvalidInput) as error:
            await self._set_state(file, FileState.REJECTED, str(error))
            return None
        if not await self._check_unchanged(inlet, file, blob):
            await self._staged_files.discard(name)
            return None
        return await self._submit_blob(order, file, blob)

    async def _check_unchanged(self, inlet: WatchSource, file: WatchFile, blob: Blob) -> bool:
        """What came is what was listed, and still there as it was: else it was being written."""
        now = await asyncio.to_thread(inlet.find_entry, file.path)
        if now is None:
            await self._set_state(file, FileState.GONE, "it vanished while it was read")
            return False
        if now.version == file.version and now.size in (None, file.size) and file.size in (None, blob.size):
            return True
        await self._db.run(watch_files.requeue_changed_file, file, now, CHANGED_WHILE_READ_MESSAGE)
        return False

    async def _submit_blob(self, order: WatchJobTemplate, file: WatchFile, blob: Blob) -> UUID | None:
        try:
            job_id = await self._create_job(order, file, blob)
        except (InvalidInput, TooLarge) as error:
            await self._staged_files.discard(blob.id)
            await self._set_state(file, FileState.REJECTED, str(error))
            return None
        except IdempotencyKeyReused:  # somebody was quicker, with other words: the declaration has changed meanwhile
            made = await self._db.run(find_by_idempotency_key, order.owner.id, build_idempotency_key(file))
            if made is None:
                raise
            job_id = UUID(str(made["id"]))
        await self._db.run(watch_files.mark_file_submitted, file, job_id)
        emit("watch.submitted", watch=file.watch, path=file.path, size=file.size, job=job_id)
        return job_id

    async def _create_job(self, order: WatchJobTemplate, file: WatchFile, blob: Blob) -> UUID:
        if not blob.size:
            raise InvalidInput("the file is empty")
        name = get_file_name(order.watch, file.path)
        spec = replace(order.spec, idem_key=build_idempotency_key(file))
        layout, task = dict(order.watch.layout), order.watch.task
        if isinstance(task, JobTask):
            detected = await asyncio.to_thread(self._detect_layout, blob.id, name, layout)
            spec = replace(spec, idem_print=blob.sha256)
            return (await submit_file(self._runtime, spec, blob, name, detected))[0].id
        options = _build_import_options(order.watch, task, {"watch": file.watch, "path": file.path})
        prepared = await self._imports.prepare(options, role=order.owner.role, spec=spec)
        return (await self._imports.submit_file(prepared, ImportFile(blob, name))).job_id

    def _detect_layout(self, blob_id: str, name: str, layout: Mapping[str, Any]) -> FileLayout:
        with self._blobs.open(blob_id) as file:
            return detect_layout(file, name=name, options=layout)

    async def _get_writable_resource(self, owner: User, name: str) -> Resource:
        """As over HTTP: an admin may name any table, others what is declared and granted."""
        resource = await self._resources.find(self._db, name, any_table=owner.role == "admin")
        if not is_granted(owner.role, resource, "write"):
            raise UnknownResource(f"{owner.name} may not write {name}")
        return resource

    async def _set_state(self, file: WatchFile, state: FileState, why: str) -> None:
        await self._db.run(watch_files.set_file_state, file, state, why, before=NOT_SUBMITTED_STATES)
        emit("watch.passed", watch=file.watch, path=file.path, state=state, reason=why)


def get_file_name(watch: Watch, path: str) -> str:
    """What the file is called; of the web, without the mark that tells two of one name apart."""
    path = path.partition("#")[0] if isinstance(watch.source, WebAddress) else path
    return path.rpartition("/")[2]


def _build_import_options(watch: Watch, task: ImportTask, source: Mapping[str, str]) -> ImportOptions:
    return ImportOptions(
        resource=task.resource,
        request=task.request,
        layout=watch.layout,
        policy=watch.policy,
        priority=watch.priority,
        source=source,
    )
