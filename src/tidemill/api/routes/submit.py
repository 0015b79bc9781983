"""POST /jobs: inputs, a file, images, or a reference to a source."""

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any

import pydantic
from fastapi import APIRouter, Header, Request, Response

from tidemill.api import inline, upload
from tidemill.api.body import is_json
from tidemill.api.guard import Guarded, Me, Permission, address_of, allow
from tidemill.api.idempotency import PATTERN, parse_key
from tidemill.api.problems import ERRORS_MAX, Refusal, fault_of
from tidemill.api.routes.submit_document import BESIDE, BODY
from tidemill.api.schemas.jobs import JobIn, JobOut, SourceIn
from tidemill.api.state import Service, Serving
from tidemill.api.views import job_out
from tidemill.connectors import folders
from tidemill.connectors.blobs import Blob
from tidemill.connectors.layout import FORMATS, KNOWN_FORMATS
from tidemill.domain.errors import InvalidInput, InvalidRequest, KeyReused, UnknownJob, UnknownKind
from tidemill.domain.identity import Role
from tidemill.domain.job import Job
from tidemill.operations import submit as operation
from tidemill.operations.services import KINDS, check_columns, columns_in
from tidemill.store import jobs
from tidemill.store.submit import Submission, find_repeated

router = APIRouter(tags=["jobs"], route_class=Guarded)
ROUTE = "jobs"
KEY = "Makes a repeated request harmless: 1 to 200 printable characters, in quotes or without"
FORM: dict[str, Any] = {"pattern": PATTERN}
OF_A_FILE = {"kind", "params", "policy", "priority"}
BESIDE_A_FILE = {"format", "filename"}
_PARAM = re.compile(r"(?P<path>params(?:\.\w+)*): (?P<reason>.*)", re.DOTALL)

_before: dict[int | str, dict[str, Any]] = {200: {"description": "What this key made before", "model": JobOut}}
_options = allow(Permission.USER, 400, 409, 413, 415, also=_before)
_options["openapi_extra"] |= {"requestBody": BODY, "parameters": BESIDE}


@router.post("/jobs", status_code=202, **_options)
async def submit_job(
    request: Request,
    response: Response,
    me: Me,
    here: Serving,
    idempotency_key: Annotated[
        str | None, Header(alias="Idempotency-Key", description=KEY, json_schema_extra=FORM)
    ] = None,
) -> JobOut:
    """Make a job. Inputs come as JSON; a file as the body itself, with `kind` in the query, or as multipart.

    Images come as several parts, or as one zip: an item for each. The answer comes when everything is durable.
    """
    base = Submission(
        kind="",
        owner_id=me.user_id,
        request_id=request.state.request_id,
        traceparent=request.state.traceparent,
        ip_address=address_of(request),
        idem_key=_key(idempotency_key),
        batch_size=here.settings.claim_max,
    )
    try:
        job, is_new = await _submit(request, here, base, me.role)
    except KeyReused:
        raise KeyReused("this Idempotency-Key was used for another request") from None
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    response.headers["Retry-After"] = "1"
    return job_out(job)


async def _submit(request: Request, here: Service, base: Submission, role: Role) -> tuple[Job, bool]:
    """With pointers to what is wrong with the words, wherever they stand."""
    make = _from_json if is_json(request.headers) else _from_file
    try:
        return await make(request, here, base, role)
    except UnknownKind as error:
        raise inline.faults([((*_place(request), "kind"), str(error))]) from None
    except InvalidRequest as error:
        told = [_PARAM.fullmatch(problem) for problem in error.problems]
        if not all(told):
            raise
        found = [((*_place(request), *one["path"].split(".")), one["reason"]) for one in told if one]
        pointed = [fault_of(fault) for fault in inline.faults(found).errors()[:ERRORS_MAX]]
        raise Refusal(422, str(error), faults=pointed) from None


def _place(request: Request) -> tuple[str]:
    """Where the words of a request are."""
    media_type = request.headers.get("content-type", "").lower()
    return ("body",) if is_json(request.headers) or media_type.startswith("multipart/") else ("query",)


async def _from_json(request: Request, here: Service, base: Submission, role: Role) -> tuple[Job, bool]:
    if request.query_params:
        raise InvalidInput("with a JSON body, all words are in it: there are no parameters beside it")
    asked = await inline.read(request, JobIn, most=here.settings.max_inline_inputs)
    if (asked.inputs is None) == (asked.source is None):
        raise InvalidInput("say either inputs or a source")
    spec = await _checked(here, replace(base, **_words(asked)), role)
    if asked.source is not None:
        return await _from_source(here, spec, asked.source)
    inputs = asked.inputs or []
    if spec.kind in KINDS:
        check_columns(spec, await asyncio.to_thread(columns_in, inputs))
    rows = partial(operation.encode_inputs, inputs, here.settings.max_row_bytes)
    return await operation.submit_and_look(here.db, spec, rows, built_in=spec.kind in KINDS)


async def _from_source(here: Service, spec: Submission, source: SourceIn) -> tuple[Job, bool]:
    """A key that comes again stands for where the file was, and not for what is there now."""
    format_ = source.format or FORMATS.get(PurePath(source.path).suffix.lower())
    if format_ is None:
        raise InvalidInput(f"the format of {source.path!r} is not known: say one of {', '.join(KNOWN_FORMATS)}")
    spec = replace(spec, idem_print=json.dumps([source.name, source.path, format_]).encode())
    found = await here.db.run(find_repeated, spec)
    if found is not None:
        with suppress(UnknownJob):  # deleted meanwhile: then it is made anew
            return await here.db.run(jobs.get, found), False
    path = folders.find(here.settings.sources, source.name, source.path)
    blob = await here.incoming.put_file(path, here.settings.max_file_size_mb << 20)
    return await _submit_blob(here, spec, blob, format_, path.name)


async def _from_file(request: Request, here: Service, base: Submission, role: Role) -> tuple[Job, bool]:
    (place,) = _place(request)

    async def check(fields: dict[str, str]) -> None:
        await _checked(here, replace(base, **_words(_from_fields(fields, place))), role)

    uploaded = await upload.receive(request, here, check=check)
    try:
        asked = _from_fields(uploaded.fields, place)
        spec = await _checked(here, replace(base, **_words(asked)), role)
    except BaseException:
        await here.incoming.drop(uploaded.blob.id)
        raise
    same = uploaded.blob.sha256 + uploaded.format.encode()  # read in another way, a file is another submission
    return await _submit_blob(here, replace(spec, idem_print=same), uploaded.blob, uploaded.format, uploaded.name)


async def _submit_blob(here: Service, spec: Submission, blob: Blob, format_: str, name: str) -> tuple[Job, bool]:
    """The loser of a race for one key leaves no file, and neither does one that is refused.

    Where nobody can say whether the job was made, the file stays: if there is none, it goes by itself.
    """
    source: dict[str, Any] = {"blob": blob.id, "format": format_, "name": name}
    try:
        if spec.kind in KINDS:
            look = await here.importing.look(blob.id, name=name, given={"format": format_})
            check_columns(spec, () if look.named_by_rows else look.columns)
            source["layout"] = look.layout
        spec = replace(spec, source=source, file_id=blob.id)
        job, is_new = await operation.submit_and_look(here.db, spec, built_in=spec.kind in KINDS)
    except (InvalidInput, KeyReused):
        await here.incoming.drop(blob.id)
        raise
    if not is_new:
        await here.incoming.drop(blob.id)
    return job, is_new


async def _checked(here: Service, spec: Submission, role: Role) -> Submission:
    """Everything that can be wrong without looking at the rows."""
    if await operation.calls_service(here.db, spec):
        spec = here.services.prepare(spec, role)
        operation.check(spec, built_in=True)
        await operation.existing(here.db, spec)
        return spec
    operation.check(spec)
    await operation.existing(here.db, spec)
    return await operation.as_declared(here.db, spec)


def _from_fields(fields: dict[str, str], place: str) -> JobIn:
    """The words beside a file, in a form or in the query: params and policy are JSON there."""
    unknown = sorted(set(fields) - OF_A_FILE - BESIDE_A_FILE)
    if unknown:
        raise inline.faults([((place, name), f"there is no field {name!r} beside a file") for name in unknown])
    values: dict[str, Any] = {name: value for name, value in fields.items() if name in OF_A_FILE}
    for name in ("params", "policy"):
        if name in values:
            values[name] = _json((place, name), values[name])
    try:
        return JobIn.model_validate(values)
    except pydantic.ValidationError as error:
        raise inline.faults_of(error, place) from error


def _json(at: tuple[str, str], text: str) -> Any:
    try:
        return pydantic.TypeAdapter(dict[str, Any]).validate_json(text)
    except pydantic.ValidationError as error:
        raise inline.faults([(at, f"it is not a JSON object: {error.errors()[0]['msg']}")]) from error


def _words(asked: JobIn) -> dict[str, Any]:
    policy = asked.policy.model_dump(exclude_none=True)
    return {"kind": asked.kind, "params": asked.params, "policy": policy, "priority": asked.priority}


def _key(header: str | None) -> str | None:
    key = parse_key(header)
    return None if key is None else f"{ROUTE} {key}"
