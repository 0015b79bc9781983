"""The words of an import: from a JSON body, from a form or from a query, checked alike.

The file of an import, wherever it comes from, in the blob store: the request's own, to keep or to remove.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
import msgspec
import pydantic
from fastapi import Request
from pydantic.alias_generators import to_snake

from tidemill.core.errors import InvalidInput, UnknownEntity, UnknownFile
from tidemill.core.file_layout import FileLayout
from tidemill.core.json_types import JsonObject
from tidemill.core.principal import Principal
from tidemill.files import source_folders
from tidemill.files.blobs.blob_store import Blob
from tidemill.files.layout import validate_layout
from tidemill.files.remote import remote_urls
from tidemill.files.remote.checked_connection import DownloadLimits
from tidemill.files.remote.downloader import Downloader
from tidemill.files.remote.remote_urls import redact_url
from tidemill.imports import import_records
from tidemill.imports.import_plan import ImportRequest
from tidemill.imports.schemas import ImportIn, ImportSourceIn, LayoutIn
from tidemill.jobs import upload
from tidemill.jobs.staged_files import make_staged_files
from tidemill.rest.json_body import convert_validation_error, make_validation_error
from tidemill.rest.request_body import carries_json_parameters
from tidemill.runtime import Runtime

LayoutModel = TypeVar("LayoutModel", bound=LayoutIn)
LAYOUT_FIELDS = tuple(LayoutIn.model_fields)
JSON_ENCODED_FIELDS = ("mapping", "policy")
REFERENCE_ONLY_FIELDS = ("source",)


def parse_json_body(model: type[LayoutModel], body: bytes) -> LayoutModel:
    try:
        return model.model_validate_json(body)
    except pydantic.ValidationError as error:
        raise convert_validation_error(error, "body") from error


def parse_form_fields(model: type[LayoutModel], fields: dict[str, str], location: str) -> LayoutModel:
    """The words beside a file; what is an object is JSON there, and a list is words between commas, or JSON."""
    values: dict[str, Any] = {to_snake(name): text for name, text in fields.items() if name != "filename"}
    unknown = sorted(values.keys() - set(model.model_fields) | values.keys() & set(REFERENCE_ONLY_FIELDS))
    if unknown:
        raise make_validation_error(
            [((location, name), f"there is no field {name!r} beside a file") for name in unknown]
        )
    for name in JSON_ENCODED_FIELDS:
        if name in values:
            values[name] = _parse_json_object((location, name), values[name])
    if values.get("sheet", "").isdecimal():
        values["sheet"] = int(values["sheet"])
    if "key" in values:
        values["key"] = _parse_list_field((location, "key"), values["key"])
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise convert_validation_error(error, location) from error


def build_layout(body: LayoutIn) -> FileLayout:
    """The layout options of a request, validated."""
    given = {name: value for name in LAYOUT_FIELDS if (value := getattr(body, name)) is not None}
    given |= {"keep_empty": True} if getattr(body, "keep_empty", False) else {}
    return validate_layout(given)


def build_import_request(body: ImportIn) -> ImportRequest:
    return ImportRequest(
        mode=body.mode,
        validate_only=body.validate_only,
        duplicates=body.duplicates,
        mapping=body.mapping,
        key=tuple(body.key),
        spreadsheet_safe=body.spreadsheet_safe,
        keep_empty=body.keep_empty,
    )


def build_stored_request(body: ImportIn) -> JsonObject:
    """What is asked for, to be kept and shown, and to be compared when its key comes again."""
    said = {} if body.source is None else body.source.model_dump(exclude_none=True)
    if "url" in said:
        said["url"] = redact_url(httpx2.URL(said["url"]))
    source = {"source": said} if said else {}
    return {
        "resource": body.resource,
        "layout": build_layout(body).to_json(),
        "policy": build_policy(body),
        "priority": body.priority,
        **msgspec.to_builtins(build_import_request(body)),
        "key": body.key,  # a list, as JSON gives it back
        **source,
    }


def build_policy(body: ImportIn) -> JsonObject:
    return body.policy.model_dump(exclude_none=True)


def _parse_json_object(location: tuple[str, str], text: str) -> Any:
    try:
        return pydantic.TypeAdapter(JsonObject).validate_json(text)
    except pydantic.ValidationError as error:
        raise make_validation_error([(location, f"it is not a JSON object: {error.errors()[0]['msg']}")]) from error


def _parse_list_field(location: tuple[str, str], text: str) -> list[Any]:
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return pydantic.TypeAdapter(list[Any]).validate_json(text)
    except pydantic.ValidationError as error:
        raise make_validation_error([(location, f"it is not a list: {error.errors()[0]['msg']}")]) from error


ImportModel = TypeVar("ImportModel", bound=ImportIn)
PREVIEW_DOWNLOAD_TIMEOUT_S = 20  # how long somebody waits for a look at a file of another machine


@dataclass(frozen=True, slots=True)
class StagedImportFile:
    """A stored file of nobody's yet."""

    blob: Blob
    name: str
    content_type: str = ""


ImportCheck = Callable[[ImportModel], Awaitable[bool]]  # whether the file that the words refer to is needed at all


async def read_import_request(
    request: Request, runtime: Runtime, me: Principal, model: type[ImportModel], check: ImportCheck[ImportModel]
) -> tuple[ImportModel, StagedImportFile | None]:
    """The words and the file of a request. Words are checked before a byte of a file is read.

    No file comes with a URL, nor of a reference that is not needed.
    """
    if carries_json_parameters(request.scope):
        asked = parse_json_body(model, await request.body())
        source = validate_import_source(asked.source)
        if source.url is not None:  # what its name leads to is seen when it is fetched
            remote_urls.check_url(source.url, DownloadLimits.from_settings(runtime.settings).allowed)
        asked = await _restore_spreadsheet_safe(runtime, asked, source)
        is_needed = await check(asked)
        return asked, await _stage_referenced_file(runtime, me, source) if is_needed and source.url is None else None
    place = "body" if request.headers.get("content-type", "").lower().startswith("multipart/") else "query"

    async def check_fields(fields: dict[str, str]) -> None:
        await check(parse_form_fields(model, fields, place))

    uploaded = await upload.receive_upload(request, runtime, check=check_fields, accept_any_type=True)
    file = StagedImportFile(uploaded.blob, uploaded.name, uploaded.content_type)
    async with drop_file_on_error(runtime, file):
        asked = parse_form_fields(model, uploaded.fields, place)
        await check(asked)  # again: fields may come behind the file
    return asked, file


async def _restore_spreadsheet_safe(runtime: Runtime, body: ImportModel, source: ImportSourceIn) -> ImportModel:
    """Of a file that we have made ourselves, we know how to read it; unless somebody says otherwise."""
    if source.file_id is None or "spreadsheet_safe" in body.model_fields_set:
        return body
    is_safe = await runtime.db.read(import_records.is_spreadsheet_safe_file, source.file_id)
    return body.model_copy(update={"spreadsheet_safe": True}) if is_safe else body


def validate_import_source(source: ImportSourceIn | None) -> ImportSourceIn:
    if source is None:
        raise InvalidInput("there is no file: send one, or say its source")
    folder = (source.name is not None, source.path is not None)
    if folder in ((True, False), (False, True)):
        raise InvalidInput("a source in a folder has a name and a path")
    if (source.url is not None) + (source.file_id is not None) + folder[0] != 1:
        raise InvalidInput("a source is a url, a file_id, or a name with a path")
    return source


async def download_preview_file(runtime: Runtime, url: str) -> StagedImportFile:
    """A file of another machine, now: for whoever waits for it."""
    remote = Downloader(
        runtime.blobs, DownloadLimits.from_settings(runtime.settings, seconds=PREVIEW_DOWNLOAD_TIMEOUT_S)
    )
    async with runtime.get(make_staged_files).reserve_name() as name:
        found = await asyncio.to_thread(remote.download, url, name)
    return StagedImportFile(found.blob, found.name or "", found.content_type or "")


@asynccontextmanager
async def drop_file_on_error(runtime: Runtime, file: StagedImportFile | None) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        if file is not None:
            await runtime.get(make_staged_files).discard(file.blob.id)
        raise


async def _stage_referenced_file(runtime: Runtime, me: Principal, source: ImportSourceIn) -> StagedImportFile:
    """A copy, or another name, for the job that is to be: what is accepted stays, whatever becomes of the source."""
    if source.file_id is not None:
        unknown = UnknownEntity(f"there is no file {source.file_id!r}")
        if not await runtime.db.run(
            import_records.is_file_of_owner, source.file_id, None if me.is_admin else me.user_id
        ):
            raise unknown
        try:
            return StagedImportFile(await runtime.get(make_staged_files).link_file(source.file_id), "")
        except UnknownFile:
            raise unknown from None
    path = source_folders.resolve_source_file(runtime.settings.sources, source.name or "", source.path or "")
    return StagedImportFile(
        await runtime.get(make_staged_files).stage_file(path, runtime.settings.max_file_size_mb << 20), path.name
    )
