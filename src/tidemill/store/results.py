"""A job's results: their columns, and all of them in order from one snapshot."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from tidemill.domain.columns import MAX_COLUMNS, Columns
from tidemill.domain.errors import UnknownJob
from tidemill.domain.export import Rows
from tidemill.domain.standing import Standing
from tidemill.store.database import Connection, Database, relaxed
from tidemill.store.json import decode_input
from tidemill.store.keys import chosen
from tidemill.store.lists.grid import find_grid
from tidemill.store.statements import sql

WINDOW = 5_000  # items one statement walks over
PACKET_ROWS, PACKET_BYTES = 1_000, 1 << 20
AT_A_TIME = 16 if psycopg.capabilities.has_stream_chunked() else 1  # rows that libpq hands over: 4.4 or 2.2 µs each
ALL = Rows()

Stored = tuple[int, str | None, str | None, str | None, str | None]  # seq, status, result, error, input


@relaxed  # the flush that follows is durable, and with it whatever was committed before
async def learn(conn: Connection, job_id: UUID, names: list[str]) -> list[str] | None:
    """Add columns that a job does not have yet; all it has then, or None if the job is gone."""
    known = await _result_columns(conn, job_id)
    if known is None or set(names) <= set(known):
        return known
    cursor = await conn.execute(sql("job/learn_columns"), {"job_id": job_id, "names": names, "most": MAX_COLUMNS})
    row = await cursor.fetchone()
    return row[0] if row is not None else await _result_columns(conn, job_id)


async def shown_inputs(conn: Connection, job_id: UUID, seqs: Sequence[int]) -> dict[int, Any]:
    """The inputs of some items, as far as a grid shows them."""
    cursor = await conn.execute(sql("item/shown_inputs"), {"job_id": job_id, "seqs": sorted(seqs)})
    return {seq: decode_input(text) for seq, text in await cursor.fetchall() if text is not None}


@dataclass(frozen=True, slots=True)
class Survey:
    """A job as an export finds it, before its rows are read."""

    job_id: UUID
    key: str
    purged: bool
    total: int
    columns: Columns
    standing: Standing


@asynccontextmanager
async def snapshot(db: Database) -> AsyncIterator[Connection]:
    """Everything as it is at one moment, for as long as it takes; locks nobody out."""
    async with db.transaction(seconds=0) as conn:
        await conn.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", prepare=False)
        yield conn


async def survey(conn: Connection, job_id: UUID) -> Survey | None:
    """None when the job is gone."""
    job = {"job_id": job_id}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/survey"), job)
        found = await cursor.fetchone()
    if found is None:
        return None
    ranges = await (await conn.execute(sql("batch/live_ranges"), job)).fetchall()
    lists = await (await conn.execute(sql("batch/leased_lists"), job)).fetchall()
    turning = frozenset(seq for (seqs,) in lists for seq in seqs)
    standing = Standing(ranges, turning, found["sparse"])
    return Survey(
        job_id, found["key"], found["purged"], found["total"], (await find_grid(conn, job_id)).columns, standing
    )


async def walk(conn: Connection, survey: Survey, only: Rows = ALL) -> AsyncGenerator[list[Stored]]:
    """Every item in order of seq, in packets of bounded size: rows come a few at a time, a packet is all there is.

    Of ``only`` some, windows without any of them are not read, and items without the key are left out.
    Without an outcome, an item of a job with result columns is not read at all: its row has only its number.
    """
    statement = sql("item/walk" if survey.columns.of == "input" else "outcome/walk")
    packet: list[Stored] = []
    size = seq = 0
    for lo in range(0, survey.total, WINDOW):
        hi = min(lo + WINDOW, survey.total)
        wanted = await _wanted(conn, survey.job_id, only, lo, hi)
        if wanted is not None and not wanted:
            seq = hi
            continue
        async with aclosing(_stream(conn, statement, {"job_id": survey.job_id, "lo": lo, "hi": hi})) as rows:
            async for row in rows:
                packet += [_nothing(gap) for gap in range(seq, row[0]) if wanted is None or gap in wanted]
                seq = row[0] + 1
                if wanted is not None and row[0] not in wanted:
                    continue
                packet.append(row)
                size += sum(len(text) for text in row[2:] if text)
                if size >= PACKET_BYTES or len(packet) >= PACKET_ROWS:
                    yield packet
                    packet, size = [], 0
        packet += [_nothing(gap) for gap in range(seq, hi) if wanted is None or gap in wanted]
        seq = hi
    yield packet


async def _wanted(conn: Connection, job_id: UUID, only: Rows, lo: int, hi: int) -> set[int] | None:
    """Those of a window that are named and have the key; None: all of them."""
    if only.seqs is None and only.key is None:
        return None
    return set(await chosen(conn, job_id, lo, hi, key=only.key, seqs=only.seqs, ranges=only.ranges))


async def state(conn: Connection, job_id: UUID) -> dict[str, Any]:
    """What changes whenever the rows of a job do."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("job/results_state"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f"there is no job {job_id}")
    return row


async def is_exportable(conn: Connection, job_id: UUID, export_id: UUID) -> bool:
    """Whether the file of an export is still wanted."""
    cursor = await conn.execute(sql("job/is_exportable"), {"job_id": job_id, "export_id": export_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def release_key(conn: Connection, job_id: UUID, idem_key: str) -> None:
    """The job came to nothing: whoever asks for the same again gets a new one."""
    await conn.execute(sql("job/release_key"), {"job_id": job_id, "idem_key": idem_key})


async def _result_columns(conn: Connection, job_id: UUID) -> list[str] | None:
    cursor = await conn.execute(sql("job/columns"), {"job_id": job_id})
    row = await cursor.fetchone()
    return None if row is None else row[0]


def _stream(conn: Connection, statement: bytes, params: dict[str, Any]) -> AsyncGenerator[Stored]:
    return cast("AsyncGenerator[Stored]", conn.cursor().stream(statement, params, size=AT_A_TIME))


def _nothing(seq: int) -> Stored:
    return seq, None, None, None, None
