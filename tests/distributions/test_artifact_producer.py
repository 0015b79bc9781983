"""One file per input: its name, its content, and errors of its query."""

import pytest

from distributions.scenes import ABC, PRICES, Scene, given, statuses
from support import eventually, rows
from tidemill.core.file_format import FileFormat


async def test_input_produces_file_in_folder_of_date_and_job_key(scene: Scene) -> None:
    job_id = await scene.submit(given("ABC"), given("DEF", "2024-02-02"))
    first, second = await scene.finish(job_id)
    job = await scene.job(job_id)
    assert job.created_at is not None
    folder = f"exports/{job.created_at:%Y/%m/%d}/{job.key}"
    assert scene.name(first["path"]) == f"{folder}/ABC_20240202_CLS.csv"
    assert scene.name(second["path"]) == f"{folder}/DEF_20240202_CLS.csv"
    assert scene.read(first["path"]) == ABC
    assert (first["rows"], first["size"], first["reused"]) == (3, len(ABC), False)
    assert job.status == "completed"
    assert (await scene.files(job_id)).generated == 2
    await scene.assert_whole()


async def test_query_without_rows_produces_file_with_header_only(scene: Scene) -> None:
    (made,) = await scene.run(given("NONE"))
    assert scene.read(made["path"]) == b"member,price\n"
    assert made["rows"] == 0


async def test_ndjson_file_escapes_special_characters(scene: Scene) -> None:
    await rows(scene.db, r"INSERT INTO public.prices VALUES ('X', 20240202, 'CLS', E'a\\b\"c\n\x01,\x02', 1)")
    (made,) = await scene.run(given("X"), format=FileFormat.NDJSON)
    assert made["path"].endswith("X_20240202_CLS.ndjson")
    assert scene.read(made["path"]) == b'{"member":"a\\\\b\\"c\\n\\u0001,\\u0002","price":1}\n'


async def test_query_without_columns_fails_its_inputs(scene: Scene) -> None:
    scene.mill.dataset("bare", **PRICES | {"query": "SELECT WHERE %(index_key)s <> ''"})
    (failed,) = await scene.finish(await scene.submit(dataset="bare"))
    assert (failed["status"], failed["error"]["code"]) == ("failed", "invalid_rows")
    assert scene.stored() == []


async def test_invalid_query_fails_its_inputs_with_reason(scene: Scene) -> None:
    scene.mill.dataset("gone", **PRICES | {"query": "SELECT * FROM public.nowhere WHERE %(index_key)s <> ''"})
    job_id = await scene.submit(dataset="gone")
    (failed,) = await scene.finish(job_id)
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "query"
    assert 'relation "public.nowhere" does not exist' in failed["error"]["reason"]
    assert (await scene.job(job_id)).status == "failed"
    assert scene.stored() == []


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT nextval('public.numbers') WHERE %(index_key)s = 'ABC'", "read-only transaction"),
        ("INSERT INTO public.prices (index_key) VALUES (%(index_key)s) RETURNING index_key", "syntax error"),
    ],
)
async def test_query_that_writes_fails_its_input(scene: Scene, query: str, reason: str) -> None:
    await rows(scene.db, "CREATE SEQUENCE public.numbers")
    scene.mill.dataset("sly", **PRICES | {"query": query})
    (failed,) = await scene.run(dataset="sly")
    assert reason in failed["error"]["reason"]


async def test_hostile_input_values_are_bound_as_query_parameters(scene: Scene) -> None:
    made = await scene.run(given("'; DROP TABLE public.prices; --"), given('%(x)s"\\'), given("{query}"))
    assert statuses(made) == ["done"] * 3
    assert await rows(scene.db, "SELECT count(*) FROM public.prices") == [(9,)]


async def test_failed_query_fails_only_its_input_in_shared_transaction(scene: Scene) -> None:
    """Short queries share a transaction; an error ends the transaction."""
    scene.mill.dataset("parts", query="SELECT 100 / %(n)s AS part", fields={"n": "integer"}, read=["user"])
    inputs = [{"n": n} for n in range(50)]
    made = await scene.run(*inputs, dataset="parts", policy={"mode": "continue"})
    assert [one["input"]["n"] for one in made if one["status"] != "done"] == [0]
    assert len(scene.stored()) == len(inputs) - 1

    async def has_no_open_transaction() -> bool:
        return await rows(scene.db, OPEN) == [(0,)]

    await eventually(has_no_open_transaction)  # the last transaction stays open for a moment


OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%%'"


async def test_query_column_named_like_internal_alias_is_written(scene: Scene) -> None:
    query = "SELECT 1 AS found, %(word)s AS word"
    scene.mill.dataset("odd", query=query, fields={"word": "text"}, read=["user"], format="ndjson")
    [one] = await scene.run({"word": "x"}, dataset="odd")
    assert scene.read(one["path"]) == b'{"found":1,"word":"x"}\n'


async def test_values_are_formatted_independently_of_database_settings(scene: Scene) -> None:
    name = (await rows(scene.db, "SELECT current_database()"))[0][0]
    for setting in ("timezone = 'Asia/Tokyo'", "bytea_output = 'escape'", "extra_float_digits = -4"):
        await rows(scene.db, f"ALTER DATABASE {name} SET {setting}")
    await scene.db._pool.drain()
    query = (
        "SELECT '2026-11-15 12:00+00'::timestamptz AS at, 1e0::float8 / 3 AS third, '\\xff'::bytea AS bytes, %(a)s AS a"
    )
    scene.mill.dataset("odd", query=query, fields={"a": "text"}, read=["user"])
    [one] = await scene.run({"a": "x"}, dataset="odd")
    assert scene.read(one["path"]) == b"at,third,bytes,a\n2026-11-15 12:00:00+00,0.3333333333333333,\\xff,x\n"
