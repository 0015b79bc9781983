"""The modes insert and upsert, and dry runs."""

import logging
from typing import Any

import pytest

from imports.scenes import Scene
from tidemill import Mill
from tidemill.config import Settings
from tidemill.store.database import Database
from tidemill.telemetry.events import Event, subscribe
from tidemill.telemetry.logs import choose_log_level

PEOPLE = """CREATE TABLE people (email text PRIMARY KEY, name text NOT NULL, age int CHECK (age > 0),
    since timestamptz DEFAULT now())"""


async def test_insert_imports_valid_rows_and_reports_errors_of_others(scene: Scene) -> None:
    await scene.table(PEOPLE, "INSERT INTO people VALUES ('old@x', 'Old', 1)")
    job = await scene.run("email,name,age\na@x,A,1\nb@x,,x\nold@x,O,3\nc@x,C,0\nd@x,D,\n", "people")
    assert job.status == "completed_with_errors"
    assert await scene.errors(job) == [(2, "name.required"), (3, "email.exists"), (4, "age.too_small")]
    assert await scene.rows("SELECT email, name, age FROM people ORDER BY 1") == [
        ("a@x", "A", 1),
        ("d@x", "D", None),
        ("old@x", "Old", 1),
    ]
    (_, _, error), *_ = await scene.outcomes(job)
    assert [(one["field"], one["code"]) for one in error["errors"]] == [("name", "name.required"), ("age", "age.type")]


async def test_import_batch_rows_limits_rows_of_one_transaction(db: Database, settings: Settings) -> None:
    few = settings.model_copy(update={"import_batch_rows": 7})
    scene = Scene(db, few, Mill(few))
    await scene.table(PEOPLE)
    job = await scene.run("email,name\n" + "".join(f"{n}@x,A\n" for n in range(30)), "people")
    assert job.counts.done == 30
    sizes = await scene.rows("SELECT count(*) FROM people GROUP BY xmin::text ORDER BY 1 DESC")
    assert sizes[0] == (7,)
    assert await scene.rows("SELECT max(hi - lo) FROM tidemill.batch") == [(7,)]


async def test_upsert_counts_inserted_updated_and_unchanged_rows(scene: Scene) -> None:
    await scene.table(PEOPLE, "INSERT INTO people VALUES ('a@x', 'A', 1, '2020-01-01'), ('b@x', 'B', 2, '2020-01-01')")
    job = await scene.run("email,name,age,since\na@x,A,1,\nb@x,Bea,2,\nc@x,C,3,\n", "people", mode="upsert")
    assert (job.status, await scene.effects(job)) == ("completed", (1, 1, 1))
    assert await scene.rows("SELECT email, name, age, extract(year FROM since) = 2020 FROM people ORDER BY 1") == [
        ("a@x", "A", 1, True),
        ("b@x", "Bea", 2, True),
        ("c@x", "C", 3, False),
    ]


async def test_dry_run_reports_same_outcomes_as_import_and_writes_nothing(scene: Scene) -> None:
    await scene.table(PEOPLE, "INSERT INTO people VALUES ('old@x', 'Old', 1), ('two@x', 'Two', 2)")
    await scene.table("CREATE TABLE notes (id int PRIMARY KEY, who text REFERENCES people, tag text UNIQUE)")
    await scene.table("INSERT INTO notes VALUES (1, 'old@x', 'a'), (2, 'two@x', 'b')")
    text = "id,who,tag\n1,old@x,b\n2,nobody,y\n3,old@x,c\n3,old@x,d\n4,two@x,a\nx,old@x,e\n5,two@x,z\n2,old@x,q\n"
    found = {}
    for mode in ("insert", "upsert"):
        before = await scene.rows("SELECT * FROM notes ORDER BY id")
        tried = await scene.run(text, "notes", mode=mode, validate_only=True, duplicates="first")
        assert await scene.rows("SELECT * FROM notes ORDER BY id") == before
        done = await scene.run(text, "notes", mode=mode, duplicates="first")
        assert await scene.outcomes(tried) == await scene.outcomes(done)
        assert await scene.effects(tried) == await scene.effects(done)
        found[mode] = await scene.errors(done)
    assert found["insert"] == [
        (1, "id.exists"),
        (2, "who.unknown_reference"),
        (5, "tag.exists"),
        (6, "id.type"),
    ]
    assert found["upsert"] == [
        (1, "tag.exists"),
        (2, "who.unknown_reference"),
        (5, "tag.exists"),
        (6, "id.type"),
    ]


async def test_dry_run_does_not_advance_sequences(scene: Scene) -> None:
    await scene.table(
        'CREATE SEQUENCE "odd \'name" START 1000',
        "CREATE TABLE t (id serial PRIMARY KEY, n int NOT NULL, code text NOT NULL DEFAULT"
        " 'C-' || nextval('\"odd ''name\"') CHECK (code > 'C-1'))",
        "INSERT INTO t (n) VALUES (1)",
    )
    job = await scene.run("n\n2\n3\nx\n", "t", validate_only=True)
    assert await scene.errors(job) == [(3, "n.type")]
    assert await scene.effects(job) == (2, 0, 0)
    await scene.table("INSERT INTO t (n) VALUES (2)")
    assert await scene.rows("SELECT id, code FROM t ORDER BY id") == [(1, "C-1000"), (2, "C-1001")]


async def test_partial_update_is_validated_with_stored_values_of_other_columns(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b int, CHECK (b > a))",
        "INSERT INTO t VALUES (1, 5, 6), (2, 5, 6)",
    )
    rows = '{"id": 1, "b": 9}\n{"id": 2, "b": 3}\n{"id": 3, "b": 4}\n'
    for validate_only in (True, False):
        job = await scene.run(rows, "t", name="r.ndjson", mode="upsert", validate_only=validate_only)
        assert await scene.errors(job) == [(2, "check"), (3, "a.required")]
        assert await scene.effects(job) == (0, 1, 0)
    assert await scene.rows("SELECT b FROM t ORDER BY id") == [(9,), (6,)]


async def test_upsert_keeps_missing_fields_and_clears_null_fields(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, a text NOT NULL, b int, c text DEFAULT 'x', d int)",
        "INSERT INTO t SELECT i, 'old', i, 'c', i FROM generate_series(1, 5) i",
    )
    lines = ['{"id": 1, "a": "new"}', '{"id": 2, "b": null}', '{"id": 3, "c": "new", "b": 33}', '{"id": 4}']
    lines += ['{"id": 6, "b": 6}', '{"id": 7, "a": "seven"}', '{"id": 5, "a": null}']
    lines += ['{"id": 8, "a": "eight"}'] * 100  # more than the inspected sample, which has no field d
    text = "\n".join([*lines, '{"id": 5, "d": 55}', '{"id": 4, "e": 1}'])
    found = {}
    for validate_only in (True, False):
        asked = {"name": "r.ndjson", "mode": "upsert", "duplicates": "last", "validate_only": validate_only}
        job = await scene.run(text, "t", **asked)
        found[validate_only] = await scene.errors(job), await scene.effects(job)
    assert found[True] == found[False] == ([(5, "a.required"), (109, "e.unknown_field")], (2, 4, 0))
    assert await scene.rows("SELECT * FROM t ORDER BY 1") == [
        (1, "new", 1, "c", 1),
        (2, "old", None, "c", 2),
        (3, "old", 33, "new", 3),
        (4, "old", 4, "c", 4),
        (5, "old", 5, "c", 55),
        (7, "seven", None, "x", None),
        (8, "eight", None, "x", None),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.ndjson", '{"tenant": "b", "code": "1", "v": 1}\n{"code": "1", "v": 2}\n{"code": "2", "v": 3}\n'),
        ("r.csv", "tenant,code,v\nb,1,1\n,1,2\n,2,3\n"),
    ],
)
async def test_upsert_uses_column_default_for_missing_key_field(scene: Scene, name: str, text: str) -> None:
    await scene.table(
        "CREATE TABLE t (tenant text NOT NULL DEFAULT 'main', code text, v int, PRIMARY KEY (tenant, code))",
        "INSERT INTO t VALUES ('main', '1', 0)",
    )
    job = await scene.run(text, "t", name=name, mode="upsert")
    assert (job.status, await scene.effects(job)) == ("completed", (2, 1, 0))
    assert await scene.rows("SELECT * FROM t ORDER BY 1, 2") == [("b", "1", 1), ("main", "1", 2), ("main", "2", 3)]


async def test_upsert_with_only_key_columns_inserts_new_rows(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    job = await scene.run("id\n1\n2\n", "t", mode="upsert")
    assert (await scene.effects(job), await scene.count("t")) == ((1, 0, 1), 2)


async def test_row_with_only_empty_values_is_ignored_in_csv_and_imported_with_defaults_from_json(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, at date DEFAULT now())")
    job = await scene.run("id,at\n7,\n,\n,2020-01-01\n", "t")
    assert (job.status, await scene.count("t")) == ("completed", 2)
    job = await scene.run('{"id": null, "at": null}\n', "t", name="rows.ndjson")
    assert (job.status, await scene.count("t")) == ("completed", 3)


async def test_import_completed_event_reports_counts_and_warns_at_high_error_rate(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (n int PRIMARY KEY)")
    told: list[dict[str, Any]] = []
    leave = subscribe(lambda event: told.append(dict(event.fields)) if event.name == "import.completed" else None)
    await scene.run("n\n1\n2\n3\nx\n", "t")
    await scene.run("n\n4\n4\n5\n", "t", duplicates="first")
    leave()
    line, repeated = told
    assert (line["resource_type"], line["mode"], line["status"]) == ("public.t", "insert", "completed_with_errors")
    assert (line["total_records"], line["successful_records"], line["failed_records"]) == (4, 3, 1)
    assert (repeated["successful_records"], repeated["skipped_records"], repeated["failed_records"]) == (2, 1, 0)
    assert line["error_rate"] == 0.25
    assert line["rows_per_sec"] > 0
    assert choose_log_level(Event("import.completed", line)) == logging.WARNING
    assert choose_log_level(Event("import.completed", line | {"error_rate": 0.1})) == logging.INFO
