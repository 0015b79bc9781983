"""Importing a file into a table: looking at it, planning, submitting."""

import asyncio
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import msgspec

from tidemill.connectors.blobs import Blob, Blobs
from tidemill.connectors.detect import describe
from tidemill.connectors.layout import RECORD_FORMATS
from tidemill.domain.errors import InvalidInput, KeyReused
from tidemill.domain.importing import KIND, ImportPlan, ImportRequest, make_plan
from tidemill.domain.ports import OpenSource, Source
from tidemill.domain.resource import Resource
from tidemill.operations.incoming import Incoming
from tidemill.operations.submit import submit
from tidemill.store.catalog import denied
from tidemill.store.database import Database
from tidemill.store.json import decode_input
from tidemill.store.submit import Submission, find_by_key, find_repeated

NO_IMAGES = "images cannot be imported into a table"
SAMPLE_ROWS, SAMPLE_BYTES = 100, 1 << 20


@dataclass(frozen=True, slots=True)
class Look:
    """What a file turned out to be: its layout, its columns and its first records."""

    layout: dict[str, Any]
    columns: tuple[str, ...]
    named_by_rows: bool
    first_line: int
    records: list[Any]
    defects: dict[int, dict[str, Any]]
    lines: list[int] | None


class Importing:
    """Imports from files in the blob store."""

    def __init__(self, db: Database, blobs: Blobs, open_source: OpenSource) -> None:
        self._db = db
        self._blobs = blobs
        self._incoming = Incoming(db, blobs)
        self._open = open_source

    async def look(
        self, blob_id: str, *, name: str = "", content_type: str = "", given: dict[str, Any], rows: int = SAMPLE_ROWS
    ) -> Look:
        """The first records of a stored file, and how they were found."""
        return await asyncio.to_thread(self._look, blob_id, name, content_type, given, rows)

    async def plan(self, look: Look, resource: Resource, request: ImportRequest) -> ImportPlan:
        plan = make_plan(request, resource, look.columns, named_by_rows=look.named_by_rows)
        await insist_on_rights(self._db, plan)
        return plan

    async def open(self, blob_id: str, layout: dict[str, Any]) -> Source:
        """The records of a stored file, from the first one on; whoever asked for it closes it."""
        reference = {"blob": blob_id, "format": layout["format"], "layout": layout}
        return await asyncio.to_thread(self._open, reference, {}, lambda: True)

    async def find(self, spec: Submission, blob: Blob, look: Look, asked: dict[str, Any]) -> UUID | None:
        """The job that the same words and the same file have made before, whatever the table looks like by now."""
        return await self._db.run(find_repeated, _fingerprinted(spec, blob, look, asked))

    async def submit(
        self, spec: Submission, blob: Blob, look: Look, plan: ImportPlan, asked: dict[str, Any], name: str
    ) -> tuple[UUID, bool]:
        """The job, and whether it is new. The file is the job's own from here on, or removed."""
        params = {"asked": asked, "plan": msgspec.to_builtins(plan)}
        source = {"blob": blob.id, "format": look.layout["format"], "layout": look.layout, "name": name}
        spec = replace(_fingerprinted(spec, blob, look, asked), params=params, source=source)
        spec = replace(spec, sparse=True, file_id=blob.id)
        try:
            job_id, is_new = await submit(self._db, spec, built_in=True)
        except (InvalidInput, KeyReused):
            await self._incoming.drop(blob.id)
            raise
        if not is_new:
            await self._incoming.drop(blob.id)
        return job_id, is_new

    async def submit_remote(
        self, spec: Submission, url: str, resource: Resource, request: ImportRequest, asked: dict[str, Any]
    ) -> tuple[UUID, bool]:
        """A job whose file is fetched by a worker; what it is planned to do is known when its columns are."""
        _insist_on_format(asked.get("layout") or {})
        params = {"asked": asked, "resource": msgspec.to_builtins(resource)} | _words(request)
        blob_id = uuid4().hex
        from tidemill.connectors.remote.links import file_name  # noqa: PLC0415  an HTTP client comes with it

        source = {"url": url, "blob": blob_id, "layout": asked.get("layout") or {}, "name": file_name(url)}
        spec = replace(spec, kind=KIND, params=params, source=source, sparse=True, file_id=blob_id)
        return await submit(self._db, replace(spec, asked=asked, idem_print=url.encode()), built_in=True)

    async def existing(self, spec: Submission, asked: dict[str, Any]) -> UUID | None:
        """The job this owner's key made already, of the same words; KeyReused if it stands for others.

        Before a byte of the file is read: only where the words say where it is are they all that there is to compare.
        """
        found = None if spec.idem_key is None else await self._db.run(find_by_key, spec.owner_id, spec.idem_key)
        if found is None:
            return None
        if found["params"].get("asked") != asked:
            raise KeyReused(f"idempotency key {spec.idem_key!r} was used for another submission")
        return UUID(str(found["id"]))

    def _look(self, blob_id: str, name: str, content_type: str, given: dict[str, Any], rows: int) -> Look:
        _insist_on_format(given)
        with self._blobs.open(blob_id) as file:
            layout = describe(file, name=name, content_type=content_type, given=given)
        if layout["format"] == "images":
            raise InvalidInput(NO_IMAGES)
        with closing(
            self._open({"blob": blob_id, "format": layout["format"], "layout": layout}, {}, lambda: True)
        ) as source:
            block = source.read(rows, SAMPLE_BYTES)
            records = [decode_input(text.decode(), exact=True) for text in block.inputs]
            columns = source.columns
            named = _named(records) if columns is None else tuple(columns)
            return Look(layout, named, columns is None, source.first_line, records, block.defects, block.lines)


async def insist_on_rights(db: Database, plan: ImportPlan) -> None:
    """InvalidInput if the table cannot be written, or if keys and references cannot be looked up."""
    resource, given, lacking = plan.resource, set(plan.given), []
    if not plan.validate_only:
        lacking += await db.run(denied, resource.table, _columns(plan), plan.mode)
    keys = [resource.field(name).column for fields in plan.watched for name in fields]
    if keys and (plan.validate_only or plan.mode == "insert"):
        lacking += await db.run(denied, resource.table, list(dict.fromkeys(keys)), "read")
    for one in resource.references:
        if given.issuperset(one.fields):
            lacking += await db.run(denied, one.table, one.columns, "read")
    if lacking:
        what = "read" if plan.validate_only else "written"
        raise InvalidInput(f"{resource.table} cannot be {what}: {'; '.join(dict.fromkeys(lacking))}")


def _insist_on_format(given: dict[str, Any]) -> None:
    """Of a format that was said: not all that can be read are rows."""
    kind = given.get("format")
    if kind == "images":
        raise InvalidInput(NO_IMAGES)
    if kind is not None and kind not in RECORD_FORMATS:
        raise InvalidInput(f"unknown format {kind!r}; known are {', '.join(RECORD_FORMATS)}")


def _fingerprinted(spec: Submission, blob: Blob, look: Look, asked: dict[str, Any]) -> Submission:
    """A key that comes again stands for what was said and sent, and not for what the catalog made of it."""
    refers = not {"name", "file_id"}.isdisjoint(asked.get("source", ()))  # and its file may be another one by now
    same = b"" if refers else blob.sha256 + msgspec.json.encode(look.layout, order="deterministic")
    return replace(spec, kind=KIND, asked=asked, idem_print=same)


def _named(records: list[Any]) -> tuple[str, ...]:
    """The fields that records name, in the order they come."""
    names: dict[str, None] = {}
    for record in records:
        if isinstance(record, dict):
            names |= dict.fromkeys(record)
    return tuple(names)


def _columns(plan: ImportPlan) -> list[str]:
    return [plan.resource.field(name).column for name in plan.given]


def _words(request: ImportRequest) -> dict[str, Any]:
    return {"request": msgspec.to_builtins(request)}
