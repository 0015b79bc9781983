"""The file of an import, wherever it comes from, in the blob store: the request's own, to keep or to remove."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request

from tidemill.api import upload
from tidemill.api.body import is_words
from tidemill.api.import_words import from_fields, from_json
from tidemill.api.schemas.imports import ImportIn, ImportSourceIn
from tidemill.api.state import Service
from tidemill.connectors import folders
from tidemill.connectors.blobs import Blob
from tidemill.connectors.remote import links
from tidemill.connectors.remote.download import Remote
from tidemill.connectors.remote.limits import RemoteLimits
from tidemill.domain.errors import InvalidInput, Unknown, UnknownFile
from tidemill.domain.identity import Principal
from tidemill.store import imports

M = TypeVar("M", bound=ImportIn)
PREVIEW_S = 20  # how long somebody waits for a look at a file of another machine


@dataclass(frozen=True, slots=True)
class ImportFile:
    """A stored file of nobody's yet."""

    blob: Blob
    name: str
    content_type: str = ""


Check = Callable[[M], Awaitable[bool]]  # whether the file that the words refer to is needed at all


async def asked_with_file(
    request: Request, here: Service, me: Principal, model: type[M], check: Check[M]
) -> tuple[M, ImportFile | None]:
    """The words and the file of a request. Words are checked before a byte of a file is read.

    No file comes with a URL, nor of a reference that is not needed.
    """
    if is_words(request.scope):
        asked = from_json(model, await request.body())
        source = checked_source(asked.source)
        if source.url is not None:  # what its name leads to is seen when it is fetched
            links.checked(source.url, RemoteLimits.of(here.settings).allowed)
        asked = await _as_exported(here, asked, source)
        is_needed = await check(asked)
        return asked, await _referred(here, me, source) if is_needed and source.url is None else None
    place = "body" if request.headers.get("content-type", "").lower().startswith("multipart/") else "query"

    async def check_fields(fields: dict[str, str]) -> None:
        await check(from_fields(model, fields, place))

    uploaded = await upload.receive(request, here, check=check_fields, any_type=True)
    file = ImportFile(uploaded.blob, uploaded.name, uploaded.content_type)
    async with removed_on_error(here, file):
        asked = from_fields(model, uploaded.fields, place)
        await check(asked)  # again: fields may come behind the file
    return asked, file


async def _as_exported(here: Service, asked: M, source: ImportSourceIn) -> M:
    """Of a file that we have made ourselves, we know how to read it; unless somebody says otherwise."""
    if source.file_id is None or "spreadsheet_safe" in asked.model_fields_set:
        return asked
    is_safe = await here.db.run(imports.is_safe, source.file_id)
    return asked.model_copy(update={"spreadsheet_safe": True}) if is_safe else asked


def checked_source(source: ImportSourceIn | None) -> ImportSourceIn:
    if source is None:
        raise InvalidInput("there is no file: send one, or say its source")
    folder = (source.name is not None, source.path is not None)
    if folder in ((True, False), (False, True)):
        raise InvalidInput("a source in a folder has a name and a path")
    if (source.url is not None) + (source.file_id is not None) + folder[0] != 1:
        raise InvalidInput("a source is a url, a file_id, or a name with a path")
    return source


async def fetched(here: Service, url: str) -> ImportFile:
    """A file of another machine, now: for whoever waits for it."""
    remote = Remote(here.blobs, RemoteLimits.of(here.settings, seconds=PREVIEW_S))
    async with here.incoming.reserved() as name:
        found = await asyncio.to_thread(remote.download, url, name)
    return ImportFile(found.blob, found.name or "", found.content_type or "")


@asynccontextmanager
async def removed_on_error(here: Service, file: ImportFile | None) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        if file is not None:
            await here.incoming.drop(file.blob.id)
        raise


async def _referred(here: Service, me: Principal, source: ImportSourceIn) -> ImportFile:
    """A copy, or another name, for the job that is to be: what is accepted stays, whatever becomes of the source."""
    if source.file_id is not None:
        unknown = Unknown(f"there is no file {source.file_id!r}")
        if not await here.db.run(imports.has_file, source.file_id, None if me.is_admin else me.user_id):
            raise unknown
        try:
            return ImportFile(await here.incoming.link(source.file_id), "")
        except UnknownFile:
            raise unknown from None
    path = folders.find(here.settings.sources, source.name or "", source.path or "")
    return ImportFile(await here.incoming.put_file(path, here.settings.max_file_size_mb << 20), path.name)
