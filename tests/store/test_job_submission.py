"""Tests of submission: in the caller's transaction, with idempotency keys, and with invalid inputs."""

import asyncio
import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import TextLoader

from support import assert_sound, closed, job_of, rows
from tidemill import Item, Mill
from tidemill.config import Settings
from tidemill.core.errors import IdempotencyKeyReused, InvalidInput, UnknownJob, UnknownKind
from tidemill.core.status import JobStatus
from tidemill.jobs.submission import submit_job
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.store.workers import register_kinds
from tidemill.testing import drain

ROWS = [{"n": n} for n in range(10)]


@pytest.fixture
def mill(mill: Mill) -> Mill:
    @mill.handler("test")
    async def run(item: Item) -> Any:
        return item.input

    return mill


async def counts(db: Database) -> tuple[Any, ...]:
    """Return the number of rows in each table of a job."""
    tables = ("job", "item", "batch", "ingest", "job_tally")
    query = "SELECT " + ", ".join(f"(SELECT count(*) FROM tidemill.{table})" for table in tables)
    return (await rows(db, query))[0]


NOTHING = (0, 0, 0, 0, 0)


async def test_submit_in_callers_transaction_is_visible_after_commit(
    mill: Mill, db: Database, tidemill_database: str
) -> None:
    async with await psycopg.AsyncConnection.connect(tidemill_database) as conn:
        await conn.execute("CREATE TABLE public.orders (job uuid)")
        job_id = await mill.submit_async("test", ROWS, connection=conn)
        await conn.execute("INSERT INTO public.orders VALUES (%s)", [job_id])
        assert await counts(db) == NOTHING, "other transactions do not see it yet"
        await conn.commit()
    assert await counts(db) == (1, 10, 1, 1, 1)
    await drain(mill, db=db)
    assert (await closed(db, job_id)).status is JobStatus.COMPLETED


async def test_submit_on_non_utf8_connection_is_rejected_and_stores_nothing(
    mill: Mill, db: Database, tidemill_database: str
) -> None:
    async with await psycopg.AsyncConnection.connect(tidemill_database, client_encoding="LATIN1") as conn:
        with pytest.raises(InvalidInput, match="client_encoding of the connection is iso8859-1"):
            await mill.submit_async("test", ["é"], connection=conn)
    blocking = psycopg.connect(tidemill_database, client_encoding="LATIN1")
    with blocking, pytest.raises(InvalidInput, match="must be UTF8"):
        mill.submit("test", ["é"], connection=blocking)
    assert await counts(db) == NOTHING


async def test_submit_is_undone_by_callers_rollback(mill: Mill, db: Database, tidemill_database: str) -> None:
    async with await psycopg.AsyncConnection.connect(tidemill_database) as conn:
        job_id = await mill.submit_async("test", ROWS, connection=conn)
        await conn.rollback()
    assert await counts(db) == NOTHING
    with pytest.raises(UnknownJob):
        await job_of(db, job_id)


async def test_submit_accepts_blocking_connection(mill: Mill, db: Database, tidemill_database: str) -> None:
    with psycopg.connect(tidemill_database, row_factory=psycopg.rows.dict_row) as conn:
        mill.submit("test", ROWS, connection=conn)
        conn.rollback()
        job_id = mill.submit("test", iter(ROWS), connection=conn, priority=3, params={"a": 1}, owner_id=7)
        assert await counts(db) == NOTHING
    job = await job_of(db, job_id)
    assert (job.counts.total, job.priority, job.params, job.owner_id) == (10, 3, {"a": 1}, 7)
    await assert_sound(db)


async def test_submit_accepts_async_connection_with_dict_rows(mill: Mill, db: Database, tidemill_database: str) -> None:
    connected = psycopg.AsyncConnection.connect(tidemill_database, row_factory=psycopg.rows.dict_row)
    async with await connected as conn:
        job_id = await mill.submit_async("test", ROWS, connection=conn)
    assert (await job_of(db, job_id)).counts.total == 10


async def test_submit_on_autocommit_connection_stores_whole_job_or_nothing(
    mill: Mill, db: Database, tidemill_database: str
) -> None:
    with psycopg.connect(tidemill_database, autocommit=True) as conn:
        with pytest.raises(InvalidInput, match="Input 2 "):
            mill.submit("test", [1, object()], connection=conn)
        assert await counts(db) == NOTHING
        kept = mill.submit("test", ROWS, connection=conn)
        with conn.transaction(force_rollback=True):
            mill.submit("test", ROWS, connection=conn)
    async with await psycopg.AsyncConnection.connect(tidemill_database, autocommit=True) as aconn:
        with pytest.raises(InvalidInput, match="Input 2 "):
            await mill.submit_async("test", [1, object()], connection=aconn)
    assert await rows(db, "SELECT id FROM tidemill.job") == [(kept,)]


@pytest.mark.parametrize("is_declared", [True, False])
async def test_submit_accepts_connection_with_own_loaders_for_json_and_times(
    mill: Mill, settings: Settings, db: Database, tidemill_database: str, is_declared: bool
) -> None:
    """Django loads jsonb as text, and times without their zone if USE_TZ is off."""

    class NaiveTimeLoader(TimestamptzLoader):
        def load(self, data: Any) -> dt.datetime:
            return super().load(data).replace(tzinfo=None)

    await db.run(register_kinds, mill.registry.create_all())
    submitter = mill if is_declared else Mill(settings)
    with psycopg.connect(tidemill_database, options="-c TimeZone=Asia/Tokyo") as conn:
        conn.adapters.register_loader("jsonb", TextLoader)
        conn.adapters.register_loader("timestamptz", NaiveTimeLoader)
        submitter.submit("test", ROWS, connection=conn, idempotency_key="once")
        submitter.submit("test", ROWS, connection=conn, idempotency_key="once")
    assert await counts(db) == (1, 10, 1, 1, 1)
    await drain(mill, db=db)
    await assert_sound(db)


async def test_submit_reads_inputs_through_connection_that_it_writes_to(
    mill: Mill, db: Database, tidemill_database: str
) -> None:
    with psycopg.connect(tidemill_database) as conn, conn.cursor("lazy") as lazy:
        lazy.execute("SELECT n, repeat('x', 1000) FROM generate_series(1, 1000) AS n")
        job_id = mill.submit("test", ([n, text] for n, text in lazy), connection=conn)
    assert (await job_of(db, job_id)).counts.total == 1_000
    await drain(mill, db=db)
    await assert_sound(db)


async def test_submit_with_bad_row_leaves_callers_transaction_usable(
    mill: Mill, db: Database, tidemill_database: str
) -> None:
    bad = [*("x" * 1_000 for _ in range(1_000)), object()]
    with psycopg.connect(tidemill_database) as conn:
        with pytest.raises(InvalidInput, match="Input 1001 "):
            mill.submit("test", bad, connection=conn)
        kept = mill.submit("test", ROWS, connection=conn)
    async with await psycopg.AsyncConnection.connect(tidemill_database) as aconn:
        with pytest.raises(InvalidInput, match="Input 1001 "):
            await mill.submit_async("test", bad, connection=aconn)
        await aconn.execute("SELECT 1")
    assert await rows(db, "SELECT id FROM tidemill.job") == [(kept,)]
    assert await counts(db) == (1, 10, 1, 1, 1)


async def test_submit_is_undone_by_callers_savepoint_rollback(mill: Mill, db: Database, tidemill_database: str) -> None:
    with psycopg.connect(tidemill_database) as conn:
        kept = mill.submit("test", ROWS, connection=conn)
        with conn.transaction(force_rollback=True):
            mill.submit("test", ROWS, connection=conn)
    assert await rows(db, "SELECT id FROM tidemill.job") == [(kept,)]


async def test_submit_with_bad_row_stores_nothing_in_callers_transaction(
    mill: Mill, db: Database, tidemill_database: str
) -> None:
    with psycopg.connect(tidemill_database) as conn:
        with pytest.raises(InvalidInput, match="Input 11 "), conn.transaction():
            mill.submit("test", [*ROWS, {"n": {1, "a"}, "bad": object()}], connection=conn)
        conn.execute("SELECT 1")
    assert await counts(db) == NOTHING


def test_submit_without_connection_stores_job(mill: Mill) -> None:
    job_id = mill.submit("test", ROWS)
    job = mill.job(job_id)
    assert (job.id, job.status, job.counts.pending) == (job_id, JobStatus.PENDING, 10)


async def test_job_without_rows_completes(mill: Mill, db: Database) -> None:
    job_id = await mill.submit_async("test", [])
    await drain(mill, db=db)
    assert (await closed(db, job_id)).status is JobStatus.COMPLETED


async def test_submit_stores_nothing_when_row_iterator_raises(mill: Mill, db: Database) -> None:
    def breaking() -> Iterator[Any]:
        yield from ROWS * 5_000
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await mill.submit_async("test", breaking())
    assert await counts(db) == NOTHING


BAD: list[tuple[Any, str]] = [
    (object(), "cannot be stored as JSON"),
    ({1, object()}, "cannot be stored as JSON"),
    ({"a": "x\x00y"}, "NUL character"),
    ({"a\x00": 1}, "NUL character"),
    ({"deep": [[{"a": ("x", "\x00")}]]}, "NUL character"),
    ({"a": "\ud800"}, "cannot be stored as JSON"),
    ({"\udfff": 1}, "cannot be stored as JSON"),
    ({"a": "x" * (10 << 20)}, "10485768 bytes; at most 4194304 are allowed"),
    ({(1, 2): 3}, "cannot be stored as JSON"),
]


@pytest.mark.parametrize(("bad", "message"), BAD, ids=[str(n) for n in range(len(BAD))])
async def test_submit_with_unstorable_input_names_row_and_stores_nothing(
    mill: Mill, db: Database, bad: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=f"Input 4 .*{message}"):
        await mill.submit_async("test", [1, 2, 3, bad, 5])
    assert await counts(db) == NOTHING


async def test_submit_with_self_referencing_input_is_rejected(mill: Mill, db: Database) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="Input 1 cannot be stored as JSON"):
        await mill.submit_async("test", [loop])
    assert await counts(db) == NOTHING


GOOD: list[tuple[Any, Any]] = [
    (None, None),
    (0, 0),
    ("", ""),
    ([], []),
    ("\\u0000", "\\u0000"),
    ('tab\t newline\n return\r backslash\\ quote"', 'tab\t newline\n return\r backslash\\ quote"'),
    ("\\.", "\\."),
    ("\\N", "\\N"),
    ("\U0001f300 é \u2028", "\U0001f300 é \u2028"),
    (2**63, 2**63),
    (UUID(int=1), str(UUID(int=1))),
    (dt.date(2026, 11, 15), "2026-11-15"),
    (decimal.Decimal("1.50"), "1.50"),
    (b"\x00\xff", "AP8="),
]


async def test_submitted_json_values_arrive_unchanged(mill: Mill, db: Database) -> None:
    job_id = await mill.submit_async("test", [value for value, _ in GOOD])
    await drain(mill, db=db)
    got = await rows(db, "SELECT result FROM tidemill.outcome WHERE job_id = %s ORDER BY seq", job_id)
    assert [value for (value,) in got] == [expected for _, expected in GOOD]


async def test_submit_of_unknown_kind_is_rejected(mill: Mill, db: Database) -> None:
    with pytest.raises(UnknownKind, match='No worker has registered a handler for kind "nope"'):
        await mill.submit_async("nope", ROWS)
    assert await counts(db) == NOTHING


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 101},
        {"priority": -101},
        {"policy": {"mode": "sometimes"}},
        {"policy": {"mode": "tolerate"}},
        {"idempotency_key": ""},
        {"idempotency_key": "x" * 256},
        {"idempotency_key": "a\nb"},
        {"params": {"a": "\x00"}},
        {"params": {"a": float("nan")}},
        {"params": {"a": object()}},
        {"params": {"a": "\ud800"}},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_submit_with_invalid_option_is_rejected(mill: Mill, db: Database, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await mill.submit_async("test", ROWS, **options)
    assert await counts(db) == NOTHING


def keyed(key: str, payload: bytes, owner: int = 0) -> Submission:
    return Submission("test", owner_id=owner, idem_key=key, idem_print=payload)


async def test_idempotency_key_with_same_payload_returns_same_job(db: Database) -> None:
    first, is_new = await submit_job(db, keyed("k", b"p"), [b"1", b"2"])
    again, is_new_again = await submit_job(db, keyed("k", b"p"), [b"1", b"2"])
    assert (first, is_new, is_new_again) == (again, True, False)
    assert (await counts(db))[:2] == (1, 2)


async def test_idempotency_key_with_other_payload_raises_key_reused(db: Database) -> None:
    await submit_job(db, keyed("k", b"p"), [b"1"])
    with pytest.raises(IdempotencyKeyReused, match='Idempotency key "k" was already used for a different submission'):
        await submit_job(db, keyed("k", b"q"), [b"1"])
    assert (await counts(db))[:2] == (1, 1)


async def test_idempotency_key_is_scoped_to_owner(db: Database) -> None:
    mine, _ = await submit_job(db, keyed("k", b"p", owner=1), [b"1"])
    theirs, _ = await submit_job(db, keyed("k", b"q", owner=2), [b"1"])
    assert mine != theirs


async def test_concurrent_submits_with_same_idempotency_key_create_one_job(db: Database) -> None:
    made = await asyncio.gather(*(submit_job(db, keyed("k", b"p"), [b"1"] * 100) for _ in range(20)))
    assert len({job_id for job_id, _ in made}) == 1
    assert [is_new for _, is_new in made].count(True) == 1
    assert await counts(db) == (1, 100, 1, 1, 1)


async def test_mill_submit_idempotency_key_detects_changed_inputs(mill: Mill, db: Database) -> None:
    first = await mill.submit_async("test", ROWS, idempotency_key="k")
    assert await mill.submit_async("test", ROWS, idempotency_key="k") == first
    with pytest.raises(IdempotencyKeyReused):
        await mill.submit_async("test", [*ROWS, {"n": 10}], idempotency_key="k")


async def test_idempotency_key_is_reusable_after_rollback(mill: Mill, db: Database, tidemill_database: str) -> None:
    key = uuid4().hex
    with psycopg.connect(tidemill_database) as conn:
        mill.submit("test", ROWS, connection=conn, idempotency_key=key)
        conn.rollback()
    job = await job_of(db, await mill.submit_async("test", ROWS, idempotency_key=key))
    assert job.counts.total == 10
