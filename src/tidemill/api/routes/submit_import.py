"""POST /imports: a file, or where it is; and a look at what would become of it."""

from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Request, Response

from tidemill.api.guard import Guarded, Me, Permission, address_of, allow
from tidemill.api.idempotency import PATTERN, parse_key
from tidemill.api.import_files import ImportFile, asked_with_file, fetched, removed_on_error
from tidemill.api.import_views import ROUTE, import_now
from tidemill.api.import_words import layout_of, policy_of, request_of, words_of
from tidemill.api.lookup import writable
from tidemill.api.routes.import_document import BESIDE, BODY, PREVIEW_BESIDE, PREVIEW_BODY
from tidemill.api.schemas.imports import ImportIn, ImportOut, PreviewIn, PreviewOut
from tidemill.api.state import Service, Serving
from tidemill.domain.errors import InvalidInput, KeyReused
from tidemill.domain.identity import Principal
from tidemill.domain.importing import KIND
from tidemill.operations import submit as operation
from tidemill.operations.import_preview import preview
from tidemill.operations.imports import Look
from tidemill.store.submit import Submission

router = APIRouter(tags=["imports"], route_class=Guarded)
KEY = "Makes a repeated request harmless: 1 to 200 printable characters, in quotes or without"
FORM: dict[str, Any] = {"pattern": PATTERN}
Key = Annotated[str | None, Header(alias="Idempotency-Key", description=KEY, json_schema_extra=FORM)]

_before: dict[int | str, dict[str, Any]] = {200: {"description": "What this key made before", "model": ImportOut}}
_submit = allow(Permission.USER, 400, 404, 413, 415, also=_before)
_submit["openapi_extra"] |= {"requestBody": BODY, "parameters": BESIDE}
_preview = allow(Permission.USER, 400, 404, 413, 415, 502)
_preview["openapi_extra"] |= {"requestBody": PREVIEW_BODY, "parameters": PREVIEW_BESIDE}


@router.post("/imports", status_code=202, **_submit)
async def submit_import(
    request: Request, response: Response, me: Me, here: Serving, idempotency_key: Key = None
) -> ImportOut:
    """Import a file into a table. It comes as the body, with the words in the query; as multipart; or by reference.

    Columns that do not fit are refused at once, before a row is read; rows that do not fit become errors of the job.
    """
    base = submission_of(request, me)
    base = replace(base, kind=KIND, idem_key=_key(idempotency_key))
    try:
        job_id, is_new = await _submit_import(request, here, me, base)
    except KeyReused:
        raise KeyReused("this Idempotency-Key was used for another request") from None
    return await accepted(response, here, job_id, is_new=is_new)


@router.post("/imports/preview", **_preview)
async def preview_import(request: Request, me: Me, here: Serving) -> PreviewOut:
    """What a file is, where its columns would go, and what is wrong with its first rows. Nothing is kept."""

    async def check(asked: PreviewIn) -> bool:
        layout_of(asked)
        await writable(here, me, asked.resource)
        return True

    asked, file = await asked_with_file(request, here, me, PreviewIn, check)
    if file is None:
        file = await fetched(here, asked.source.url if asked.source and asked.source.url else "")
    try:
        look = await _look(here, asked, file, asked.rows)
        resource = await writable(here, me, asked.resource)
        found = await preview(here.importing, look, resource, request_of(asked), here.normalizers)
        return PreviewOut.model_validate(found)
    finally:
        await here.incoming.drop(file.blob.id)


def submission_of(request: Request, me: Principal, **more: Any) -> Submission:
    return Submission(
        kind="",
        **more,
        owner_id=me.user_id,
        request_id=request.state.request_id,
        traceparent=request.state.traceparent,
        ip_address=address_of(request),
    )


async def accepted(response: Response, here: Service, job_id: UUID, *, is_new: bool) -> ImportOut:
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/imports/{job_id}"
    response.headers["Retry-After"] = "1"
    return await import_now(here.db, job_id)


async def _submit_import(request: Request, here: Service, me: Principal, base: Submission) -> tuple[UUID, bool]:
    made: UUID | None = None

    async def check(asked: ImportIn) -> bool:
        nonlocal made
        words = words_of(asked)
        operation.check(replace(base, policy=policy_of(asked), priority=asked.priority), built_in=True)
        await writable(here, me, asked.resource)
        made = await here.importing.existing(base, words)
        return made is None

    asked, file = await asked_with_file(request, here, me, ImportIn, check)
    async with removed_on_error(here, file):
        resource = await writable(here, me, asked.resource)
        spec = replace(base, policy=policy_of(asked), priority=asked.priority)
        url = asked.source.url if asked.source and asked.source.url else ""
        if file is None and not url and made is not None:
            return made, False
        if file is None:
            return await here.importing.submit_remote(spec, url, resource, request_of(asked), words_of(asked))
        look = await _look(here, asked, file)
        found = await here.importing.find(spec, file.blob, look, words_of(asked))
        if found is not None:
            await here.incoming.drop(file.blob.id)
            return found, False
        plan = await here.importing.plan(look, resource, request_of(asked))
    # From here on the file is the job's, or removed with the refusal.
    return await here.importing.submit(spec, file.blob, look, plan, words_of(asked), file.name)


async def _look(here: Service, asked: ImportIn, file: ImportFile, rows: int | None = None) -> Look:
    if not file.blob.size:
        raise InvalidInput("the file is empty")
    more = {} if rows is None else {"rows": rows}
    return await here.importing.look(
        file.blob.id, name=file.name, content_type=file.content_type, given=layout_of(asked), **more
    )


def _key(header: str | None) -> str | None:
    key = parse_key(header)
    return None if key is None else f"{ROUTE} {key}"
