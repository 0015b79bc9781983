"""Stages files that a request refers to: stored files, files in configured folders, and files at a URL."""

import asyncio

from tidemill.core.errors import UnknownEntity, UnknownFile
from tidemill.files import source_folders
from tidemill.imports import import_records
from tidemill.imports.import_submission import FileReference, ImportFile
from tidemill.jobs.staged_files import make_staged_files
from tidemill.runtime import Runtime

PREVIEW_DOWNLOAD_TIMEOUT_S = 20  # the caller waits for it


async def stage_referenced_file(runtime: Runtime, reference: FileReference) -> ImportFile:
    """A copy or another name of the file, which stays when the original is removed.

    Raises:
        UnknownEntity: The stored file does not exist, or belongs to another user.
        InvalidInput: There is no such folder or file.
        TooLarge: The file exceeds the size limit.
    """
    if reference.file_id is not None:
        return await _link_stored_file(runtime, reference.file_id, reference.owner_id)
    settings = runtime.settings
    path = source_folders.resolve_source_file(settings.sources, reference.name or "", reference.path or "")
    blob = await runtime.get(make_staged_files).stage_file(path, settings.max_file_size_mb << 20)
    return ImportFile(blob, path.name)


async def _link_stored_file(runtime: Runtime, file_id: str, owner_id: int | None) -> ImportFile:
    unknown = UnknownEntity(f"there is no file {file_id!r}")
    if not await runtime.db.run(import_records.is_file_of_owner, file_id, owner_id):
        raise unknown
    try:
        return ImportFile(await runtime.get(make_staged_files).link_file(file_id), "")
    except UnknownFile:
        raise unknown from None


async def download_preview_file(runtime: Runtime, url: str) -> ImportFile:
    """The file at a URL, downloaded within the request."""
    from tidemill.files.remote.checked_connection import DownloadLimits  # noqa: PLC0415  they import an HTTP client
    from tidemill.files.remote.downloader import Downloader  # noqa: PLC0415

    limits = DownloadLimits.from_settings(runtime.settings, seconds=PREVIEW_DOWNLOAD_TIMEOUT_S)
    async with runtime.get(make_staged_files).reserve_name() as name:
        found = await asyncio.to_thread(Downloader(runtime.blobs, limits).download, url, name)
    return ImportFile(found.blob, found.name or "", found.content_type or "")
