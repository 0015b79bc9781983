"""The command `tidemill sql`: statements, rows as a table or JSON, errors with their position, and psql."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from support.command import Tidemill


def test_sql_file_runs_all_statements_and_prints_rows_as_table(tidemill: "Tidemill", tidemill_database: str) -> None:
    script = "CREATE TABLE pets (id int, name text);\nINSERT INTO pets VALUES (1, 'Ann [b]'), (2, NULL);\nTABLE pets;\n"
    said = tidemill("sql", tidemill.file("pets.sql", script))
    lines = [line.rstrip() for line in said.out.splitlines()]
    assert lines == ["CREATE TABLE", "INSERT 0 2", "id  name", "1   Ann [b]", "2", "(2 rows)"]
    with psycopg.connect(tidemill_database) as conn:
        assert conn.execute("SELECT count(*) FROM pets").fetchone() == (2,)


def test_sql_option_prints_values_as_json(tidemill: "Tidemill") -> None:
    query = (
        "SELECT 1 AS a, NULL AS b, true AS c, ARRAY[1, 2] AS d, '{\"x\": 1}'::jsonb AS e, 'infinity'::timestamp AS f, "
        "'NaN'::float8 AS g, '\\xff'::bytea AS h, 1.50 AS i, 'é' AS j"
    )
    line = tidemill("sql", "-c", query, "--json").out
    shown = {"a": 1, "b": None, "c": True, "d": [1, 2], "e": {"x": 1}, "f": "infinity", "g": "NaN", "h": "\\xff"}
    assert json.loads(line) == shown | {"i": "1.50", "j": "é"}


def test_sql_reads_statements_from_standard_input(tidemill: "Tidemill") -> None:
    assert tidemill("sql", "-", "--json", answer="SELECT 7 AS n").out == '{"n": 7}\n'


def test_sql_error_names_line_and_column_and_undoes_all_statements(
    tidemill: "Tidemill", tidemill_database: str
) -> None:
    script = tidemill.file("bad.sql", "CREATE TABLE pets (id int);\nSELECT id,\n  'é', nmae FROM pets;\n")
    said = tidemill("sql", script, code=1)
    assert said.err == 'error: SQL error on line 3, column 8: column "nmae" does not exist\n'
    with psycopg.connect(tidemill_database) as conn:
        assert conn.execute("SELECT to_regclass('pets')").fetchone() == (None,)


def test_sql_error_contains_hint_of_server(tidemill: "Tidemill") -> None:
    said = tidemill("sql", "-c", "SELECT nam FROM (SELECT 1 AS name) x", code=1)
    assert said.err.endswith('Perhaps you meant to reference the column "x.name"\n')


def test_sql_limits_printed_rows_and_counts_all(tidemill: "Tidemill") -> None:
    said = tidemill("sql", "-c", "SELECT generate_series(1, 2500) AS n", "--json", "--limit", "2")
    assert said.out == '{"n": 1}\n{"n": 2}\n'
    assert said.err == "Printed the first 2 of 2,500 rows. Use --limit to print more.\n"
    assert len(tidemill("sql", "-c", "SELECT generate_series(1, 2500)", "--json").out.splitlines()) == 1_000


def test_sql_reports_open_transaction_and_copy_as_errors(tidemill: "Tidemill") -> None:
    said = tidemill("sql", "-c", "BEGIN; CREATE TABLE pets (id int)", code=1)
    assert "did not end its transaction, so it was rolled back. Add COMMIT." in said.err
    for copy in ("COPY (SELECT 1) TO STDOUT", "CREATE TEMP TABLE t (i int); COPY t FROM STDIN"):
        assert "COPY with STDIN or STDOUT is not available" in tidemill("sql", "-c", copy, code=1).err


def test_sql_rejects_missing_empty_and_ambiguous_input(tidemill: "Tidemill") -> None:
    assert tidemill.refuses("sql", "-c", " \n") == "-c contains no SQL statement"
    assert tidemill.refuses("sql", "gone.sql") == 'Cannot read "gone.sql": No such file or directory'
    assert tidemill.refuses("sql", tidemill.file("nul.sql", "SELECT '\0'")).startswith('"nul.sql" contains a NUL')
    assert "cannot be used together" in tidemill.refuses("sql", "a.sql", "-c", "SELECT 1")


def test_sql_works_without_schema_of_tidemill(tidemill: "Tidemill", tidemill_database: str) -> None:
    with psycopg.connect(tidemill_database, autocommit=True) as conn:
        conn.execute("DROP SCHEMA tidemill CASCADE")
    assert tidemill("sql", "-c", "SELECT 1 AS n", "--json").out == '{"n": 1}\n'


def test_sql_without_arguments_runs_psql_with_address_in_environment(tidemill: "Tidemill", tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "psql"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "arguments: $*, $PGUSER $PGDATABASE $PGPASSWORD"\nexit 3\n')
    fake.chmod(0o755)
    parts = psycopg.conninfo.conninfo_to_dict(tidemill.url)
    tidemill.extra = {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    tidemill.url = f"postgresql://postgres:geheim@/{parts['dbname']}?host={parts['host']}"
    assert tidemill("sql", code=3).out == f"arguments: , postgres {parts['dbname']} geheim\n"
