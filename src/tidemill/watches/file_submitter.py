"""Fetches files of a watch and submits them as jobs. After a crash, the next scan continues."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from tidemill.core.errors import (
    IdempotencyKeyReused,
    Interrupted,
    InvalidInput,
    QuotaExceeded,
    RemoteUnreachable,
    StorageAccessDenied,
    StorageUnavailable,
    TooLarge,
    UnknownFile,
)
from tidemill.failpoints import failpoint
from tidemill.files.blobs.blob_store import Blob
from tidemill.jobs.staged_files import make_staged_files
from tidemill.runtime import PreparedFileTask, Runtime
from tidemill.store import users
from tidemill.store.job_submission import Submission, find_job_by_idempotency_key
from tidemill.store.users import User
from tidemill.telemetry.events import emit
from tidemill.watches import watch_records
from tidemill.watches.file_state import FileState, WatchFile, build_idempotency_key, describe_column_drift
from tidemill.watches.sources.watch_source import FetchLimits, WatchSource
from tidemill.watches.watch import Watch, WebAddress

CHANGED_WHILE_READ_MESSAGE = "The file changed while a worker read it. Waiting until the file stops changing"
NOT_SUBMITTED_STATES = (FileState.SEEN, FileState.TAKEN)


CONSECUTIVE_FAILURES_MAX = 3  # after that, the source is probably the cause, not the files


class FileHeld(Exception):
    """The columns of a file differ from those of earlier files. A user has to accept or reject it."""


@dataclass(frozen=True, slots=True)
class FileSubmissionResult:
    """The number of files that became jobs, the first problem, and whether more files are ready."""

    submitted: int = 0
    problem: str | None = None
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class PreparedWatch:
    """A watch whose files can be submitted now."""

    watch: Watch
    owner: User
    task: PreparedFileTask


class WatchFileSubmitter:
    """Submits files as jobs of the owners of watches, with their permissions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._db = runtime.db
        self._blobs = runtime.blobs
        self._staged_files = runtime.get(make_staged_files)

    async def prepare_watch(self, watch: Watch) -> PreparedWatch:
        """Check the owner and the task of a watch before a file is claimed.

        Raises:
            UnknownUser, UnknownResource, UnknownKind, InvalidInput: The watch cannot submit files now.
        """
        owner = await self._db.run(users.get_user, watch.owner)
        spec = Submission(
            kind="",
            owner_id=owner.id,
            policy=dict(watch.policy),
            priority=watch.priority,
            batch_size=self._runtime.settings.claim_max,
            quota=self._runtime.settings.default_quota,
        )
        return PreparedWatch(watch, owner, await watch.task.prepare(self._runtime, owner, spec, watch.layout))

    async def submit_files(
        self, prepared: PreparedWatch, source: WatchSource, files: Sequence[WatchFile], limits: FetchLimits
    ) -> FileSubmissionResult:
        """Submit files one after another.

        A file that cannot be read does not block the others; the next scan retries it. After
        ``CONSECUTIVE_FAILURES_MAX`` unreadable files in a row the scan ends.
        """
        submitted, consecutive_failures, problem = 0, 0, None
        for file in files:
            if not limits.should_continue():
                return FileSubmissionResult(submitted, problem, has_more=True)
            try:
                submitted += await self.submit_file(prepared, source, file, limits) is not None
                consecutive_failures = 0
            except Interrupted:  # the file stays claimed, and the next scan continues with it
                return FileSubmissionResult(submitted, problem, has_more=True)
            except FileHeld as held:
                problem = problem or f'Held "{file.path}": {held}'
                consecutive_failures = 0
            except QuotaExceeded as error:  # a later scan submits the file when the owner has room
                await self._db.run(watch_records.requeue_changed_file, file, file.listed_file, str(error))
                return FileSubmissionResult(submitted, problem or f'Cannot submit "{file.path}": {error}')
            except (StorageAccessDenied, StorageUnavailable, RemoteUnreachable, OSError) as error:
                await self._db.run(
                    watch_records.requeue_changed_file, file, file.listed_file, f"Cannot read the file: {error}"
                )
                problem = problem or f'Cannot read "{file.path}": {error}'
                consecutive_failures += 1
                if consecutive_failures >= CONSECUTIVE_FAILURES_MAX:
                    break
        return FileSubmissionResult(submitted, problem)

    async def submit_file(
        self, prepared: PreparedWatch, source: WatchSource, file: WatchFile, limits: FetchLimits
    ) -> UUID | None:
        """Submit a file and return the id of its job, which may exist already.

        Return None if the file was not submitted. The state and note of the file then contain the reason.
        """
        owner_id = file.owner_id or prepared.owner.id
        existing = await self._db.run(find_job_by_idempotency_key, owner_id, build_idempotency_key(file))
        if existing is not None:
            await self._db.run(watch_records.mark_file_submitted, file, existing.id)
            return existing.id
        name = uuid4().hex  # a new name, because the stored file of an earlier attempt may belong to a job
        if not await self._db.run(watch_records.claim_file, file, prepared.owner.id, name):
            return None
        failpoint("watch.file_claimed")
        try:
            blob = await asyncio.to_thread(source.fetch_to_blob_store, file.listed_file, self._blobs, name, limits)
        except UnknownFile:
            # FTP servers report a file without read permission as missing.
            if await asyncio.to_thread(source.find_file, file.path) is not None:
                raise StorageAccessDenied("permission denied") from None
            await self._set_state_and_report(file, FileState.GONE, "The file was removed before it was submitted")
            return None
        except (TooLarge, InvalidInput) as error:
            await self._set_state_and_report(file, FileState.REJECTED, str(error))
            return None
        if not await self._confirm_unchanged_or_requeue(source, file, blob):
            await self._staged_files.discard(name)
            return None
        failpoint("watch.file_fetched")
        return await self._submit_blob(prepared, file, blob)

    async def _confirm_unchanged_or_requeue(self, source: WatchSource, file: WatchFile, blob: Blob) -> bool:
        """Return whether the fetched file is the listed version. Otherwise requeue the file or mark it as gone."""
        now = await asyncio.to_thread(source.find_file, file.path)
        if now is None:
            await self._set_state_and_report(file, FileState.GONE, "The file was removed while a worker read it")
            return False
        if now.version == file.version and now.size in (None, file.size) and file.size in (None, blob.size):
            return True
        await self._db.run(watch_records.requeue_changed_file, file, now, CHANGED_WHILE_READ_MESSAGE)
        return False

    async def _submit_blob(self, prepared: PreparedWatch, file: WatchFile, blob: Blob) -> UUID | None:
        key, name = build_idempotency_key(file), prepared.watch.name
        try:
            columns = await prepared.task.read_columns(blob, get_file_name(prepared.watch, file.path))
            if columns is not None:
                await self._hold_if_columns_drifted(prepared.watch, file, columns, blob)
            job_id = await prepared.task.submit(
                blob, get_file_name(prepared.watch, file.path), key, {"watch": name, "path": file.path}
            )
        except (InvalidInput, TooLarge) as error:
            await self._staged_files.discard(blob.id)
            await self._set_state_and_report(file, FileState.REJECTED, str(error))
            return None
        except QuotaExceeded:
            await self._staged_files.discard(blob.id)
            raise
        except IdempotencyKeyReused:  # another scanner submitted the file with another configuration of the watch
            existing = await self._db.run(find_job_by_idempotency_key, prepared.owner.id, key)
            if existing is None:
                raise
            job_id = existing.id
        failpoint("watch.job_created")
        if columns is not None:
            await self._db.run(watch_records.store_watch_columns, name, columns)
        await self._db.run(watch_records.mark_file_submitted, file, job_id)
        emit("watch.submitted", watch=file.watch, path=file.path, size=file.size, job=job_id)
        return job_id

    async def _hold_if_columns_drifted(self, watch: Watch, file: WatchFile, columns: Sequence[str], blob: Blob) -> None:
        """Hold a file, and raise FileHeld, if its columns changed and no user accepted them."""
        before = None if file.accepted else await self._db.read(watch_records.read_watch_columns, watch.name)
        drift = before and describe_column_drift(before, columns, watch.allowed_drift)
        if drift:
            await self._staged_files.discard(blob.id)
            reason = f"The columns changed ({drift}). Accept or reject the file"
            await self._set_state_and_report(file, FileState.HELD, reason)
            raise FileHeld(reason)

    async def _set_state_and_report(self, file: WatchFile, state: FileState, why: str) -> None:
        await self._db.run(watch_records.change_file_state_if_in_states, file, state, why, before=NOT_SUBMITTED_STATES)
        emit("watch.passed", watch=file.watch, path=file.path, state=state, reason=why)


def get_file_name(watch: Watch, path: str) -> str:
    """Return the name of the file, for HTTP sources without the suffix that makes equal names unique."""
    path = path.partition("#")[0] if isinstance(watch.source, WebAddress) else path
    return path.rpartition("/")[2]
