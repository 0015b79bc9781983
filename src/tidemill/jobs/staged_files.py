"""Files that are stored before their job exists. Maintenance removes them if the job is never created."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from uuid import uuid4

from tidemill.config import Settings
from tidemill.core.errors import Unavailable, UnknownEntity, UnknownFile
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import SourceReference
from tidemill.core.principal import Role
from tidemill.failpoints import failpoint
from tidemill.files import source_folders
from tidemill.files.blobs.blob_store import Blob, BlobStore
from tidemill.jobs.work_gates import make_download_gate, run_in_upload_thread
from tidemill.runtime import Runtime
from tidemill.store import retention
from tidemill.store.database import Database


class StagedFiles:
    """Stores files under names that are registered first. The transaction that creates the job claims the file."""

    def __init__(self, db: Database | None, blobs: BlobStore) -> None:
        """``db``: None does not register names, for a store that its owner removes as a whole."""
        self._db = db
        self._blobs = blobs

    @asynccontextmanager
    async def reserve_name(self) -> AsyncIterator[str]:
        """Reserve the name of a file; discard the file if the block fails."""
        name = uuid4().hex
        if self._db is not None:
            await self._db.run(retention.register_unclaimed_file, name)
        try:
            yield name
            failpoint("submit.file_staged")
        except Exception:
            await self.discard(name)
            raise

    async def stage_file(self, path: Path) -> Blob:
        """Store a copy of a file, so that the original may change later; raise InvalidInput if it cannot be read."""
        return await self.stage_chunks(source_folders.iter_local_file_chunks(path))

    async def stage_chunks(self, pieces: Iterator[bytes]) -> Blob:
        """Store chunks as a file."""
        async with self.reserve_name() as name:
            return await run_in_upload_thread(self._blobs.put, pieces, name)

    async def copy_stored_file(self, name: str) -> Blob:
        """Copy a stored file under a new name, so that either can be removed."""
        async with self.reserve_name() as to:
            return await run_in_upload_thread(self._blobs.copy_and_hash, name, to)

    async def discard(self, name: str) -> None:
        """Remove a file. If that fails, maintenance removes it later."""
        if await asyncio.to_thread(self._blobs.try_remove, name) and self._db is not None:
            with suppress(Unavailable):
                await self._db.run(retention.clear_file_expiry, name)


@dataclass(frozen=True, slots=True)
class DownloadInfo:
    """Metadata of a file that can be downloaded."""

    file_id: str
    name: str
    size: int
    sha256: str
    content_type: str


def make_staged_files(runtime: Runtime) -> StagedFiles:
    return StagedFiles(runtime.db, runtime.blobs)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that is stored and not owned by a job yet."""

    blob: Blob
    name: str
    content_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReference:
    """A file that is not part of the request: a URL, a stored file, or a file of a configured folder or bucket."""

    url: str | None = None
    file_id: str | None = None
    name: str | None = None  # name of a source in TIDEMILL_SOURCES
    path: str | None = None  # path in that source
    role: Role = Role.USER  # the role of the user who refers to the source
    owner_id: int | None = None  # the owner of file_id; None allows the files of all users


PREVIEW_DOWNLOAD_TIMEOUT_S = 20  # short, as the HTTP client waits


async def stage_referenced_file(runtime: Runtime, reference: FileReference, user_id: int) -> StagedFile:
    """Stage a copy of a file, or a link to it, which stays when the original is deleted. Not for URLs.

    Raises:
        UnknownEntity: The stored file does not exist, or belongs to another user.
        InvalidInput: The source is unknown or not allowed for the role, or it has no such file.
        TooLarge: The file exceeds the size limit.
        Unavailable: The bucket cannot be read.
    """
    if reference.file_id is not None:
        return await _stage_file_of_owner(runtime, reference.file_id, reference.owner_id)
    return await _stage_source_file(runtime, reference.role, reference.name or "", reference.path or "", user_id)


async def _stage_file_of_owner(runtime: Runtime, file_id: str, owner_id: int | None) -> StagedFile:
    unknown = UnknownEntity(f'File "{file_id}" does not exist')
    if not await runtime.db.run(retention.is_file_of_owner, file_id, owner_id):
        raise unknown
    try:
        return StagedFile(await runtime.get(make_staged_files).copy_stored_file(file_id), "")
    except UnknownFile:
        raise unknown from None


async def _stage_source_file(runtime: Runtime, role: Role, source: str, path: str, user_id: int) -> StagedFile:
    """Copy a file of a source in a thread of the user's downloads, because a bucket can be slow."""
    max_bytes = runtime.settings.max_file_size_mb << 20
    chunks = source_folders.iter_source_chunks(runtime.settings.sources, role, source, path, max_bytes)
    async with runtime.get(make_staged_files).reserve_name() as name:
        blob = await runtime.get(make_download_gate).run(user_id, runtime.blobs.put, chunks, name)
    return StagedFile(blob, PurePath(path).name)


async def download_file(runtime: Runtime, url: str, user_id: int) -> StagedFile:
    """Download and stage the file at a URL, while the HTTP client waits."""
    from tidemill.files.remote.checked_connection import DownloadLimits  # noqa: PLC0415  they import an HTTP client
    from tidemill.files.remote.downloader import Downloader  # noqa: PLC0415

    limits = DownloadLimits.from_settings(runtime.settings, seconds=PREVIEW_DOWNLOAD_TIMEOUT_S)
    async with runtime.get(make_staged_files).reserve_name() as name:
        gate = runtime.get(make_download_gate)
        downloaded = await gate.run(user_id, Downloader(runtime.blobs, limits).download, url, name)
    return StagedFile(downloaded.blob, downloaded.name or "", downloaded.content_type or "")


def check_and_redact_url(settings: Settings, url: str) -> str:
    """Return a URL without its query, which may contain secrets; InvalidInput if it is not allowed.

    The worker checks the address that its host resolves to.
    """
    from tidemill.files.remote.checked_connection import (  # noqa: PLC0415  it imports an HTTP client
        DownloadLimits,
        parse_allowed_url,
        remove_url_query,
    )

    return remove_url_query(parse_allowed_url(url, DownloadLimits.from_settings(settings).allowed))


def make_url_source(url: str, *, format_: str | None = None, layout: FileLayout | None = None) -> SourceReference:
    """Return the source of a job whose file a worker downloads."""
    from tidemill.files.remote.checked_connection import get_url_file_name  # noqa: PLC0415  it imports an HTTP client

    return SourceReference(blob=uuid4().hex, url=url, format=format_, layout=layout, name=get_url_file_name(url))
