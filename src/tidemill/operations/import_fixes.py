"""Mended rows of an import, sent back as a file: stored as corrections, and only those rows go round again."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tidemill.domain.batch import LIST_MAX
from tidemill.domain.block import Block, line_of
from tidemill.domain.errors import InvalidColumns, InvalidInput, InvalidRows, Unavailable
from tidemill.domain.importing.fixes import PROBLEMS_MAX, Cells, Matcher, Names, Problems
from tidemill.domain.job import Job
from tidemill.domain.ports import Source
from tidemill.operations.import_errors import file_columns
from tidemill.operations.imports import Importing, Look
from tidemill.store import activity, bulk, fix, reprocess
from tidemill.store.about import tell_step
from tidemill.store.bulk import Operation, Step
from tidemill.store.database import Connection, Database, is_transient
from tidemill.store.inspect import look_up
from tidemill.store.json import decode_input, encode

CHUNK_BYTES = 4 << 20
Merge = Callable[[Any, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Mended:
    """A stored file of mended rows; who sent it."""

    blob_id: str
    name: str
    content_type: str
    layout: dict[str, Any]
    by: int
    request_id: str | None
    max_row_bytes: int


async def fix_rows(db: Database, importing: Importing, job: Job, file: Mended) -> Operation:
    """All of them in one transaction, or none: InvalidRows tells every row that cannot be taken."""
    given = file.layout | ({"keep_empty": True} if _plan(job).get("keep_empty") else {})
    look = await importing.look(
        file.blob_id, name=file.name, content_type=file.content_type, given=given, rows=LIST_MAX
    )
    names = await _names(db, job, look)
    merge = _over if look.named_by_rows else Cells(_plan(job)).read
    source = await importing.open(file.blob_id, look.layout)
    try:
        with closing(source):
            async with db.transaction(bounded=False) as conn:
                step = await _Fixing(conn, job, file, names, merge).run(source)
    except Exception as error:
        if not is_transient(error):
            raise
        raise Unavailable("the database is not available now; nothing was changed") from error
    await tell_step(db, step)
    return await db.run(bulk.find, step.operation_id)


async def _names(db: Database, job: Job, look: Look) -> Names:
    names = Names(await file_columns(db, job), _plan(job).get("mapping", {}))
    problems = [] if look.named_by_rows else names.problems(look.columns)
    if problems:
        raise InvalidColumns(problems)
    return names


class _Fixing:
    """One file, in one transaction. ``merge``: what a row held, and what the file has of it; the rest stays."""

    def __init__(self, conn: Connection, job: Job, file: Mended, names: Names, merge: Merge) -> None:
        self._conn = conn
        self._job = job
        self._file = file
        self._names = names
        self._merge = merge
        self._problems = Problems()
        self._matcher = Matcher(job.counts.total, self._problems, _plan(job).get("mapping", ()))
        self._row = 0

    async def run(self, source: Source) -> Step:
        conn, job_id, file = self._conn, self._job.id, self._file
        locked = await reprocess.begin(conn, job_id)
        items = 0
        while (block := await asyncio.to_thread(source.read, LIST_MAX, CHUNK_BYTES)).inputs:
            items += await self._take(locked, dict(self._matched(block, source.first_line)))
        if self._problems.count:
            raise InvalidRows(self._problems.told, self._problems.count)
        if not items:
            raise InvalidInput("there is no row in the file")
        await reprocess.reopen(conn, job_id)
        predicate = {"statuses": ["failed"], "reset_attempts": True, "fixed_rows": items}
        who = {"user_id": file.by, "job_id": job_id, "request_id": file.request_id}
        operation_id = await bulk.add_done(conn, "reprocess", predicate, items=items, **who)
        await activity.add(conn, job_id, file.by, "fix", rows=items, operation=str(operation_id), file=file.name)
        return Step(operation_id, items, job_id, file.request_id)

    def _matched(self, block: Block, first_line: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, text in enumerate(block.inputs):
            self._row += 1
            line = line_of(self._row, None if block.lines is None else block.lines[index], first_line)
            if index in block.defects:
                self._problems.add(f"line {line}: {block.defects[index]['reason']}")
                continue
            record = self._names.renamed(decode_input(text.decode(), exact=True))
            if (found := self._matcher.match(record, line)) is not None:
                yield found

    async def _take(self, locked: dict[str, Any], mended: dict[int, dict[str, Any]]) -> int:
        if not mended:
            return 0
        held = await fix.current(self._conn, self._job.id, list(mended))
        mended = {seq: self._merge(held.get(seq), fields) for seq, fields in mended.items()}
        inputs = {seq: data for seq, fields in mended.items() if (data := self._encoded(seq, fields)) is not None}
        taken = await fix.fix_failed(self._conn, locked, inputs, by=self._file.by)
        for seq in sorted(inputs.keys() - set(taken)):
            await self._tell_why(seq)
        return len(taken)

    def _encoded(self, seq: int, fields: dict[str, Any]) -> bytes | None:
        try:
            data = encode(fields, exact=True)
        except (TypeError, ValueError, RecursionError) as error:
            self._problems.add(f"row {seq + 1} cannot be stored: {error}")
            return None
        if len(data) > self._file.max_row_bytes:
            self._problems.add(f"row {seq + 1} has more than {self._file.max_row_bytes} bytes")
            return None
        return data

    async def _tell_why(self, seq: int) -> None:
        is_told = len(self._problems.told) < PROBLEMS_MAX
        status = (await look_up(self._conn, self._job.id, seq))["status"] if is_told else "in another state"
        self._problems.add(f"row {seq + 1} is {status}: only failed rows can be mended")


def _plan(job: Job) -> dict[str, Any]:
    return job.params.get("plan") or {}


def _over(held: Any, fields: dict[str, Any]) -> dict[str, Any]:
    return (held if isinstance(held, dict) else {}) | fields
