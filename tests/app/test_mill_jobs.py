"""Mill methods: submit all types of jobs, wait, iterate and control."""

import io
import tempfile
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

import psycopg
import pytest

from support import rows
from tidemill import Fail, IdempotencyKeyReused, InvalidInput, Item, JobStatus, Mill, Settings, UnknownJob, UnknownKind
from tidemill.store import workers
from tidemill.store.database import Database
from tidemill.testing import drain


@pytest.fixture
def mill(mill: Mill) -> Mill:
    @mill.handler("double", max_attempts=1)
    async def double(item: Item) -> int:
        if item.input < 0:
            raise Fail("negative", code="negative")
        return int(item.input) * 2

    return mill


def test_a_misspelled_option_is_a_type_error_that_names_it(mill: Mill) -> None:
    with pytest.raises(TypeError, match="'priorty'"):
        mill.submit("double", [1], priorty=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'concurency'"):
        mill.handler("other", concurency=5)  # type: ignore[call-arg]


@pytest.fixture
async def submitter(mill: Mill, settings: Settings, db: Database) -> Mill:
    """A process without handler code; a worker has registered the mill's kinds."""
    await db.run(workers.register_kinds, mill.registry.create_all())
    return Mill(settings)


async def test_a_kind_that_only_workers_know_is_submitted(submitter: Mill, mill: Mill) -> None:
    job_id = await submitter.submit_async("double", [1, 2])
    await drain(mill)
    assert [result async for result in submitter.iter_results_async(job_id)] == [2, 4]


async def test_a_kind_that_only_workers_know_is_submitted_in_the_callers_transaction(
    submitter: Mill, mill: Mill, tidemill_database: str
) -> None:
    with psycopg.connect(tidemill_database) as conn:
        blocking = submitter.submit("double", [1], connection=conn)
    async with await psycopg.AsyncConnection.connect(tidemill_database) as aconn:
        awaited = await submitter.submit_async("double", [1], connection=aconn)
    await drain(mill)
    for job_id in (blocking, awaited, submitter.submit("double", [])):
        assert (await submitter.job_async(job_id)).kind == "double"
    submitter.close()


async def test_a_kind_that_nobody_knows_is_refused(submitter: Mill, tidemill_database: str) -> None:
    with pytest.raises(UnknownKind, match=r'"duoble"\. Known kinds: double'):
        await submitter.submit_async("duoble", [1])
    with submitter, pytest.raises(UnknownKind, match=r'"duoble"\. Known kinds: double'):
        submitter.submit("duoble", [1])
    with psycopg.connect(tidemill_database) as conn, pytest.raises(UnknownKind, match='"duoble"'):
        submitter.submit("duoble", [1], connection=conn)


async def test_waiting_ends_with_the_job(mill: Mill) -> None:
    job_id = await mill.submit_async("double", [1, -1])
    with pytest.raises(TimeoutError, match=r"is still pending after 0.1 s: 0 of 2 items are settled"):
        await mill.wait_async(job_id, timeout=0.1)
    await drain(mill)
    assert (await mill.wait_async(job_id)).status is JobStatus.COMPLETED_WITH_ERRORS
    with mill:
        assert mill.wait(job_id).counts.done == 1
        with pytest.raises(UnknownJob):
            mill.wait(uuid4())


async def test_items_are_iterated_with_input_and_outcome(mill: Mill) -> None:
    job_id = await mill.submit_async("double", [*range(700), -1])
    await drain(mill)
    with mill:
        items = list(mill.iter_items(job_id))
        assert [item.input for item in items] == [*range(700), -1]
        assert [item.result for item in items] == [n * 2 for n in range(700)] + [None]
        (failed,) = mill.iter_items(job_id, status="failed")
        assert (failed.row, failed.status, failed.attempts) == (701, "failed", 1)
        assert failed.error is not None
        assert failed.error["code"] == "negative"
        assert list(mill.iter_results(job_id)) == [n * 2 for n in range(700)]
        assert next(iter(mill.iter_items(job_id))).row == 1, "and the iteration is aborted"


async def test_a_job_is_paused_resumed_cancelled_and_reprocessed(mill: Mill) -> None:
    job_id = await mill.submit_async("double", [1, -1])
    await mill.pause_async(job_id)
    await drain(mill)
    assert (await mill.job_async(job_id)).status is JobStatus.PAUSED
    await mill.resume_async(job_id)
    await drain(mill)
    assert await mill.reprocess_async(job_id, codes=["other"]) == 0
    assert await mill.reprocess_async(job_id, statuses=["done"], rows=[1]) == 1
    with mill:
        mill.cancel(job_id)
        assert mill.wait(job_id, timeout=10).counts.cancelled == 1
        assert mill.reprocess(job_id, statuses=["failed"]) == 1
        mill.pause(job_id)
        mill.resume(job_id)


async def test_an_import_and_an_export_of_a_table(mill: Mill, db: Database, tmp_path: Path) -> None:
    await rows(db, "CREATE TABLE public.users (id int PRIMARY KEY, name text)")
    path = tmp_path / "users.csv"
    path.write_text("id,name\n1,Ada\n2,Grace\n")
    imports = [
        await mill.submit_import_async(path, "public.users", idempotency_key="monday"),
        await mill.submit_import_async(path, "public.users", idempotency_key="monday"),
        mill.submit_import(
            io.BytesIO(b"id;full\n2;Hopper\n"),
            "public.users",
            mode="upsert",
            mapping={"full": "name"},
            layout={"format": "csv"},
        ),
    ]
    assert imports[0] == imports[1]
    await drain(mill)
    assert await rows(db, "SELECT id, name FROM public.users ORDER BY id") == [(1, "Ada"), (2, "Hopper")]
    export = await mill.submit_export_async("public.users", fields=["name"], where=["id[gte]=2"])
    assert mill.submit_export("public.users", order=["-id"], compression="gzip") != export
    await drain(mill)
    with mill.open_export(export) as file:
        assert file.read() == b"name\nHopper\n"
    mill.close()


@pytest.mark.parametrize(("name", "stored"), [("users.csv", "users.csv"), (None, "")])
async def test_import_of_temporary_file_stores_given_name_only(
    mill: Mill, db: Database, name: str | None, stored: str
) -> None:
    """A temporary file has no name, or the number of its file descriptor."""
    await rows(db, "CREATE TABLE public.users (id int PRIMARY KEY)")
    with tempfile.SpooledTemporaryFile() as file:
        file.write(b"id\n1\n")
        file.seek(0)
        job_id = await mill.submit_import_async(
            cast("BinaryIO", file), "public.users", name=name, layout={"format": "csv"}
        )
    assert await rows(db, "SELECT coalesce(source->>'name', '') FROM tidemill.job WHERE id = %s", job_id) == [(stored,)]


async def test_an_import_that_cannot_be_planned_leaves_no_file(mill: Mill, db: Database, settings: Settings) -> None:
    await rows(db, "CREATE TABLE public.users (id int PRIMARY KEY)")
    with pytest.raises(InvalidInput, match='"nope"'):
        await mill.submit_import_async(io.BytesIO(b"nope\n1\n"), "public.users", layout={"format": "csv"})
    assert not _list_stored_files(settings)


def _list_stored_files(settings: Settings) -> list[Path]:
    return [path for path in Path(settings.blobs).rglob("*") if path.is_file()]


async def test_a_distribution_makes_a_file_per_input(mill: Mill) -> None:
    @mill.dataset("prices", fields={"sku": {"type": "text"}})
    def prices(input_: dict[str, str]) -> list[dict[str, str]]:
        return [{"sku": input_["sku"], "cents": "5"}]

    job_id = await mill.submit_distribution_async("prices", [{"sku": "A"}, {"sku": "B"}], format="ndjson")
    again = mill.submit_distribution("prices", [{"sku": "A"}], reuse=False, idempotency_key="today")
    assert mill.submit_distribution("prices", [{"sku": "A"}], reuse=False, idempotency_key="today") == again
    with pytest.raises(IdempotencyKeyReused):
        mill.submit_distribution("prices", [{"sku": "B"}], reuse=False, idempotency_key="today")
    await drain(mill)
    assert [result["rows"] async for result in mill.iter_results_async(job_id)] == [1, 1]
    assert mill.wait(again, timeout=10).counts.done == 1
    mill.close()
