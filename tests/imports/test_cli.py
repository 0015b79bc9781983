"""The commands import, fix, repair and promote."""

import asyncio
import csv
import gzip
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from support import assert_sound, eventually, rows
from tidemill.cli.demo import write_demo_files
from tidemill.core.decide import HANDLER_FAILURE_CODES
from tidemill.store.database import Database
from tidemill_bench import imports, results
from tidemill_bench.imports import run_benchmark
from tidemill_bench.plans import ImportBenchPlan

if TYPE_CHECKING:
    from support.command import Tidemill

TABLE = "CREATE TABLE public.people (id int PRIMARY KEY, name text NOT NULL, age int CHECK (age >= 0))"
GOOD, BAD = 'ID;Name;"Age"\n1;Ann;30\n2;Bob;\n', "3;;40\n4;Dora;-1\n5;Emil;old\n"


async def test_import_command_writes_errors_file_and_fix_command_completes_import(
    tidemill: "Tidemill", db: Database
) -> None:
    await rows(db, TABLE)
    file = tidemill.file("people.csv", GOOD + BAD)
    said = tidemill("import", file, "--into", "people", "--errors", "bad.csv", code=1).out
    for word in ("completed_with_errors", "2 done", "3 failed", "2 inserted", "name.required", "age.too_small", "old"):
        assert word in said
    key = said.split()[0]
    with (tidemill.folder / "bad.csv").open() as found:
        bad = list(csv.DictReader(found, delimiter=";"))
    assert [(row["ID"], row["_row"]) for row in bad] == [("3", "3"), ("4", "4"), ("5", "5")]
    mended = "ID,Name,Age,_row,_errors\n3,Carl,40,3,\n4,Dora,1,4,\n5,Emil,50,5,x\n"
    said = tidemill("fix", key, tidemill.file("mended.csv", mended)).out
    assert "Requeued 3 rows" in said
    assert "completed " in said
    people = await rows(db, "SELECT id, name, age FROM people ORDER BY id")
    assert people == [(1, "Ann", 30), (2, "Bob", None), (3, "Carl", 40), (4, "Dora", 1), (5, "Emil", 50)]
    await assert_sound(db)


async def test_repair_command_lists_errors_previews_and_repairs(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    file = tidemill.file("people.csv", "id,name,age\n1,Ann,30 y\n2,Bob,31 y\n3,Cy,old\n4,,5\n")
    key = tidemill("import", file, "--into", "people", code=1).out.split()[0]
    listed = tidemill("repair", key).out
    assert "age.type" in listed
    causes = [json.loads(line) for line in tidemill("repair", key, "--json").out.splitlines()]
    assert [(one["code"], one["rows"]) for one in causes] == [("age.type", 3), ("name.required", 1)]
    assert "name.required" in listed
    rule = ("--cause", "age.type", "--replace", " y")
    seen = tidemill("repair", key, *rule, "--preview").out
    assert "The rule changes 2 of 3 rows. After the change, 2 are valid." in seen
    assert ["1", "age", "30", "y", "30"] in [line.split() for line in seen.splitlines()]
    assert await rows(db, "SELECT count(*) FROM people") == [(0,)]
    said = tidemill("repair", key, *rule, "--errors", "bad.csv", code=1).out
    assert "Requeued 2 rows. The rule did not change 1 row" in said
    assert (tidemill.folder / "bad.csv").read_text().count("\n") == 3
    assert "Dismissed 1 row" in tidemill("repair", key, "--cause", "name.required", "--drop").out
    tidemill("repair", key, "--cause", "age.type", "--translate", "old=80", code=1)
    people = await rows(db, "SELECT id, name, age FROM people ORDER BY id")
    assert people == [(1, "Ann", 30), (2, "Bob", 31), (3, "Cy", 80)]
    await assert_sound(db)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cause", "age.type"], "Set --cause and one of"),
        (["--drop"], "Set --cause and one of"),
        (["--cause", "age.type", "--drop", "--default", "1"], "Set --cause and one of"),
        (["--cause", "age.type", "--with", "1"], "--with and --whole require --replace"),
        (["--cause", "age.type", "--into", "a,b", "--drop"], "--into requires --split"),
        (["--cause", "age.type", "--translate", "old"], 'Invalid value "old" for --translate. Use OLD=NEW.'),
        (["--cause", "age.type", "--format", "dym"], 'Unknown format "dym"'),
        (["--cause", "age.type", "--replace", ""], '"find" must not be empty'),
        (["--cause", "age.type", "--split", ",", "--into", "age"], "length 2"),
    ],
)
async def test_repair_command_with_invalid_options_is_refused(
    tidemill: "Tidemill", arguments: list[str], message: str
) -> None:
    assert message in tidemill.refuses("repair", "J20261115_000001", *arguments)


async def test_fix_command_reports_each_unmatched_row_and_changes_nothing(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    key = tidemill("import", tidemill.file("people.csv", GOOD + BAD), "--into", "people", code=1).out.split()[0]
    mended = tidemill.file("mended.csv", "ID,Name,Age,_row\n3,Carl,4,3\n8,Hans,4,99\n1,Ann,30,1\n3,Carl,4,3\n")
    summary, *problems = tidemill("fix", key, mended, code=2).err.splitlines()
    assert summary == "error: No rows were changed"
    assert sorted(problems) == [
        '  line 3: the import has no row "99"',
        "  line 5: row 3 appears more than once",
        "  row 1 is done: only failed rows can be fixed",
    ]
    mended = tidemill.file("mended.csv", "ID,_row\n" + "".join(f"8,{99 + n}\n" for n in range(30)))
    assert tidemill("fix", key, mended, code=2).err.splitlines()[20:] == [
        '  line 21: the import has no row "118"',
        "  and 10 more",
    ]
    mended = tidemill.file("mended.csv", "ID,_row\n8,99\n")
    assert tidemill.refuses("fix", key, mended).endswith(' changed: line 2: the import has no row "99"')


async def test_fix_command_matches_columns_by_field_name_or_any_case(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    file = tidemill.file("people.csv", "ID;First Name;How Old\n3;;40\n4;Dora;-1\n5;Emil;-5\n")
    asked = ("import", file, "--into", "people", "--map", "First Name=name", "--map", "How Old=age")
    key = tidemill(*asked, code=1).out.split()[0]
    mended = tidemill.file("mended.csv", "nmae,what,_row\nCarl,1,1\n")
    said = tidemill.refuses("fix", key, mended)
    assert 'Column "nmae" is not a column of the import (the import has the columns ID, First Name, How Old);' in said
    mended = tidemill.file("mended.csv", "Name,FIRST-NAME,_row\nCarl,Carl,1\n")
    assert 'Columns "Name", "FIRST-NAME" are all mapped to "First Name"' in tidemill.refuses("fix", key, mended)
    tidemill("fix", key, tidemill.file("mended.csv", "FIRST-NAME,_row\nCarl,1\n"), code=1)
    tidemill("fix", key, tidemill.file("mended.csv", "Age,_row\n1,2\n"), code=1)
    tidemill("fix", key, tidemill.file("mended.ndjson", '{"age": 5, "_row": 3}\n'))
    assert await rows(db, "SELECT * FROM people ORDER BY id") == [(3, "Carl", 40), (4, "Dora", 1), (5, "Emil", 5)]


async def test_reprocess_and_retry_warn_that_invalid_import_rows_fail_again(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    key = tidemill("import", tidemill.file("people.csv", GOOD + BAD), "--into", "people", code=1).out.split()[0]
    warning = "invalid import rows: the same input fails again. Fix them first: tidemill fix"
    assert "invalid rows" not in tidemill("reprocess", key, "--status", "done").err
    said = tidemill("reprocess", key, "--code", "name.required")
    assert (said.out, f"These are {warning} {key} FILE\n" in said.err) == ("Requeued 1 item\n", True)
    await rows(db, "UPDATE tidemill.job_tally SET codes = codes || '{\"exhausted\": 1}'")
    said = tidemill("retry", key)
    assert (said.out, f"Some of these are {warning} {key} FILE\n" in said.err) == ("Requeued 2 items\n", True)


async def test_handler_failure_codes_are_same_in_python_and_database(db: Database) -> None:
    [(found,)] = await rows(
        db,
        "SELECT array_agg(code) FROM unnest(%s::text[]) code"
        " WHERE tidemill.failure_category('tidemill.import', '{}', code) = 'handler'",
        [*HANDLER_FAILURE_CODES, "invalid", "name.required"],
    )
    assert set(found) == HANDLER_FAILURE_CODES


async def test_import_command_checks_errors_path_first_and_replaces_old_file(
    tidemill: "Tidemill", db: Database
) -> None:
    await rows(db, TABLE)
    file = tidemill.file("people.csv", GOOD)
    for place in ("nowhere/bad.csv", "."):
        assert "Cannot write" in tidemill("import", file, "--into", "people", "--errors", place, code=2).err
    assert await rows(db, "SELECT count(*) FROM people") == [(0,)]
    tidemill.file("bad.csv", "ID,_row\n7,7\n")
    said = tidemill("import", file, "--into", "people", "--errors", "bad.csv")
    assert "Detected: CSV, UTF-8" in said.err
    assert "fix" not in said.out
    assert (tidemill.folder / "bad.csv").read_text().splitlines() == ["ID;Name;Age;_row;_errors;_error_codes"]


async def test_import_command_shows_reason_when_source_is_truncated(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    packed = gzip.compress(("id,name,age\n" + "".join(f"{n},Ann,{n % 90}\n" for n in range(20_000))).encode())
    path = tidemill.folder / "cut.csv.gz"
    path.write_bytes(packed[: len(packed) // 2])
    said = " ".join(tidemill("import", str(path), "--into", "people", code=1).out.split())
    assert "Cannot read the source" in said


async def test_import_dry_run_writes_nothing_until_promote_command(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    said = tidemill("import", tidemill.file("people.csv", GOOD), "--into", "public.people", "--validate-only").out
    assert "2 would be inserted" in said
    assert await rows(db, "SELECT count(*) FROM people") == [(0,)]
    assert "2 inserted" in tidemill("promote", said.split()[0]).out
    assert await rows(db, "SELECT count(*) FROM people") == [(2,)]


async def test_import_upsert_updates_existing_rows_and_reports_effects(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    await rows(db, "INSERT INTO people VALUES (1, 'Ann', 30), (2, 'Bert', NULL)")
    file = tidemill.file("people.csv", GOOD + "9;Nina;9\n")
    said = tidemill("import", file, "--into", "people", "--mode", "upsert").out
    assert "1 inserted · 1 updated · 1 unchanged" in said
    assert await rows(db, "SELECT name FROM people ORDER BY id") == [("Ann",), ("Bob",), ("Nina",)]


async def test_import_preview_shows_layout_and_row_errors_and_stores_nothing(
    tidemill: "Tidemill", db: Database
) -> None:
    await rows(db, TABLE)
    said = tidemill("import", tidemill.file("people.csv", GOOD + BAD), "--into", "people", "--preview").out
    for word in ("semicolon-delimited", "ID → id", "Emil", "Row 3", "must not be empty", "must be at least 0"):
        assert word in said
    assert await rows(db, "SELECT (SELECT count(*) FROM tidemill.job), (SELECT count(*) FROM people)") == [(0, 0)]
    assert tidemill.stored() == []


CATALOG = (
    "SELECT nspname::text, relname::text, relkind::text, reltuples, relfilenode FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname NOT LIKE 'pg\\_%%' ORDER BY 1, 2"
)


async def test_import_preview_leaves_database_without_schema_unchanged(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    await rows(db, "DROP SCHEMA tidemill CASCADE")
    before = await rows(db, CATALOG)
    file = tidemill.file("people.csv", GOOD + BAD)
    assert "Row 3" in tidemill("import", file, "--into", "people", "--preview").out
    assert "Row 3" in tidemill("import", "-", "--into", "people", "--preview", answer=GOOD + BAD).out
    assert await rows(db, CATALOG) == before
    assert await rows(db, "SELECT to_regnamespace('tidemill')::text") == [(None,)]
    assert tidemill.stored() == []


async def test_import_preview_works_for_role_that_may_only_read_table(
    tidemill: "Tidemill", db: Database, tidemill_database: str
) -> None:
    role = f"reader_{os.getpid()}"
    await rows(db, TABLE)
    await rows(db, f"CREATE ROLE {role} LOGIN")
    await rows(db, f"ALTER ROLE {role} SET default_transaction_read_only = on")
    await rows(db, f"GRANT SELECT ON people TO {role}")
    parts = psycopg.conninfo.conninfo_to_dict(tidemill_database)
    tidemill.url = f"postgresql://{role}@/{parts['dbname']}?host={parts['host']}"
    try:
        file = tidemill.file("people.csv", GOOD + BAD)
        said = tidemill("import", file, "--into", "people", "--preview", code=2).out
    finally:
        await rows(db, f"DROP OWNED BY {role}")
        await rows(db, f"DROP ROLE {role}")
    assert "Row 3" in said
    assert f"Cannot write to public.people: role {role} lacks INSERT" in said
    assert f"run: GRANT INSERT (age, id, name) ON public.people TO {role};" in " ".join(said.split())
    assert "--map" not in said


async def test_import_preview_table_is_not_cut_in_pipe(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    name = "a name of more than thirty characters " * 10
    said = tidemill("import", tidemill.file("people.csv", f"ID,Name\n1,{name}\n"), "--into", "people", "--preview").out
    assert name.strip() in said


async def test_import_preview_escapes_control_characters_of_file(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    file = tidemill.file("evil.csv", "id;\x1b[31mEVIL\u202e\n1;\x1b[2J\n")
    shown = tidemill("import", file, "--into", "people", "--preview").out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert 'Column "\\x1b[31mEVIL\\u202e" is not a field of' in shown


async def test_import_preview_shows_requested_number_of_rows(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    file = tidemill.file("people.csv", "id,name\n" + "".join(f"{n},name{n}\n" for n in range(1, 31)))
    asked = ("import", file, "--into", "people")
    for words, count in (
        (["--preview"], 10),
        (["--preview-rows", "25"], 25),
        (["--preview", "--preview-rows", "2"], 2),
    ):
        assert tidemill(*asked, *words).out.count("name") - 3 == count, words
    assert "less than or equal to 1000" in tidemill(*asked, "--preview-rows", "1001", code=2).err
    assert await rows(db, "SELECT count(*) FROM people") == [(0,)]


async def test_import_command_reads_standard_input_and_named_pipes(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    assert "Bob" in tidemill("import", "-", "--into", "people", "--preview", answer=GOOD).out
    assert "2 inserted" in tidemill("import", "-", "--into", "people", answer=GOOD).out
    assert "1 inserted" in tidemill("import", "/dev/stdin", "--into", "people", answer='{"id": 3, "name": "C"}\n').out
    tabs = "id\tname\n4\tD;E,F\n"
    assert "1 inserted" in tidemill("import", "-", "--into", "people", "--format", "tsv", answer=tabs).out
    pipe = tidemill.folder / "people.csv"
    os.mkfifo(pipe)
    with tidemill.running("import", str(pipe), "--into", "people") as importing:
        await asyncio.to_thread(pipe.write_text, "id,name\n5,G\n")
        said, _ = await asyncio.to_thread(importing.communicate, timeout=60)
    assert "1 inserted" in said
    assert await rows(db, "SELECT name FROM people ORDER BY id") == [("Ann",), ("Bob",), ("C",), ("D;E,F",), ("G",)]
    assert "file is empty" in tidemill("import", "-", "--into", "people", code=2).err


async def test_import_interrupted_while_reading_stdin_exits_and_creates_no_job(
    tidemill: "Tidemill", db: Database
) -> None:
    await rows(db, TABLE)
    with tidemill.running("import", "-", "--into", "people", stdin=subprocess.PIPE) as importing:
        assert importing.stdin is not None
        importing.stdin.write("id,name\n")
        importing.stdin.flush()
        await eventually(lambda: rows(db, "SELECT 1 FROM tidemill.unneeded_file"))
        importing.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(importing.wait, 20) == 130
    assert await rows(db, "SELECT count(*) FROM tidemill.job") == [(0,)]


async def test_import_uses_last_value_of_duplicate_json_key(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    tidemill("import", "-", "--into", "people", answer='{"id": 1, "name": "A", "name": "B"}\n')
    assert await rows(db, "SELECT name FROM people") == [("B",)]


async def test_import_preview_shows_reason_for_unparsable_row(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    file = tidemill.file("people.csv", "id,name,age\n1,Ann,1\n2,Bob\n")
    said = tidemill("import", file, "--into", "people", "--preview").out
    assert "Row has 2 fields, but the header has 3" in said
    assert "must be an object" not in said


async def test_invalid_import_command_is_rejected_on_one_line_before_reading_rows(
    tidemill: "Tidemill", db: Database
) -> None:
    await rows(db, TABLE)
    file = tidemill.file("people.csv", "id,nmae\n1,Ann\n")
    said = tidemill.refuses("import", file, "--into", "people")
    assert 'Column "nmae" is not a field of public.people (did you mean "name"?)' in said
    assert 'No column for the required field "name"' in said
    assert 'Unknown table "poeple"' in tidemill.refuses("import", file, "--into", "poeple")
    assert "Cannot import into schema tidemill" in tidemill.refuses("import", file, "--into", "tidemill.job")
    assert 'File "nowhere.csv" does not exist' in tidemill.refuses("import", "nowhere.csv", "--into", "people")
    assert tidemill.refuses("import", ".", "--into", "people") == 'Cannot read ".": it is a folder'
    assert "Use insert or upsert." in tidemill.refuses("import", file, "--into", "people", "--mode", "replace")
    for place in (file, "https://example.com/people.csv"):
        said = tidemill.refuses("import", place, "--into", "people", "--format", "docx")
        assert said == 'Unknown format "docx". Known formats: csv, json, ndjson, parquet, tsv, xlsx.'
    assert "COLUMN=FIELD" in tidemill.refuses("import", file, "--into", "people", "--map", "x")
    assert list((tidemill.folder / "blobs").iterdir()) == []


async def test_interrupted_import_is_kept_and_completed_by_next_worker(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    await rows(
        db,
        """CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
          BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$;
        CREATE TRIGGER slow BEFORE INSERT ON people FOR EACH STATEMENT EXECUTE FUNCTION slow()""",
    )
    file = tidemill.file("people.csv", "id,name\n" + "".join(f"{n},n\n" for n in range(60_000)))

    async def counted(least: int) -> bool:
        return bool((await rows(db, "SELECT count(*) >= %s FROM people", least))[0][0])

    tidemill.anew = True
    with tidemill.running("import", file, "--into", "people") as importing:
        await eventually(lambda: counted(1))
        importing.send_signal(signal.SIGINT)
        said, _ = await asyncio.to_thread(importing.communicate, timeout=60)
    assert importing.returncode == 130
    assert "is saved. To continue it, run: tidemill worker\n" in said
    assert not await counted(60_000)
    with tidemill.running("worker") as worker:
        await eventually(lambda: counted(60_000))
        worker.terminate()
        await asyncio.to_thread(worker.communicate)
    await assert_sound(db)


@pytest.mark.needs_feature("distributions")
@pytest.mark.needs_feature("exports")
async def test_demo_command_imports_three_files_and_repeats_unchanged(tidemill: "Tidemill", db: Database) -> None:
    said = tidemill("demo", "--rows", "400").out
    assert said.count("396 inserted") == 3
    assert "author_id.unknown_reference" in said
    counts = (
        "SELECT (SELECT count(*) FROM demo.users), (SELECT count(*) FROM demo.articles), count(*) FROM demo.comments"
    )
    assert await rows(db, counts) == [(396, 396, 396)]
    assert tidemill("demo", "--rows", "400").out.count("396 unchanged") == 3
    await assert_sound(db)


def test_demo_files_are_deterministic(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in write_demo_files(tmp_path, 300)]
    assert [text.count(b"\n") for text in first] == [301, 300, 300]
    assert first == [path.read_bytes() for path in write_demo_files(tmp_path, 300)]


async def test_import_benchmark_measures_all_targets_and_cleans_up(
    db: Database, tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", tidemill_database)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
    result = await asyncio.to_thread(run_benchmark, ImportBenchPlan(users=1_000, articles=1_000, pairs=1_000, rounds=1))
    assert results.IMPORT_MAXIMUMS.keys() <= result["ratios"].keys() | result["figures"].keys()
    assert result["figures"]["import_rss_mb"] > 10
    for table in ("job", "batch", "item", "outcome", "ingest", "effect", "repeat"):
        assert await rows(db, f"SELECT count(*) FROM tidemill.{table}") == [(0,)], table
    assert await rows(db, "SELECT count(*) FROM pg_namespace WHERE nspname = 'tidemill_bench'") == [(0,)]
    assert os.listdir(tmp_path) == []  # noqa: PTH208  an async test must not block on paths


def test_import_benchmark_warns_when_machine_is_noisy() -> None:
    assert imports.describe_noise({"copy_spread": 0.1}) is None
    assert "not quiet" in (imports.describe_noise({"copy_spread": 0.3}) or "")


async def test_import_command_uses_resource_of_app_and_allows_errors_by_option(
    tidemill: "Tidemill", db: Database
) -> None:
    await rows(db, TABLE)
    tidemill.file(
        "house.py",
        "from tidemill import Mill\n"
        "mill = Mill()\n"
        "mill.resource('folk', table='people', fields={'name': {'normalize': ['title'], 'max_length': 5}})\n"
        "mill.normalizer('title')(str.title)\n",
    )
    file = tidemill.file("people.csv", "id,name\n1,ann\n2,longer name\n")
    asked = ["import", file, "--into", "folk", "--app", "house:mill"]
    assert "must have at most 5 characters" in tidemill(*asked, "--preview").out
    said = tidemill(*asked, "--allow-errors").out
    assert "name.too_long" in said
    assert await rows(db, "SELECT name FROM people") == [("Ann",)]
