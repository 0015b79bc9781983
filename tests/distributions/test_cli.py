"""tidemill distribute: writes one file per input."""

import json
from typing import TYPE_CHECKING

import pytest

from support import rows
from tidemill.store.database import Database

if TYPE_CHECKING:
    from support.command import Tidemill

DECLARED = """
[datasets.prices]
query = "SELECT member FROM public.prices WHERE index_key = %(index_key)s AND day = %(day)s ORDER BY 1"
fields = { index_key = "text", day = "date" }
date_field = "day"
"""
TABLE = "CREATE TABLE public.prices AS SELECT 'ABC' AS index_key, date '2024-02-02' AS day, 'M' || n AS member"


async def test_distribute_command_writes_file_per_input_and_reuses_unchanged_files(
    tidemill: "Tidemill", db: Database
) -> None:
    await rows(db, f"{TABLE} FROM generate_series(1, 3) n")
    tidemill.file("tidemill.toml", DECLARED)
    inputs = tidemill.file("inputs.csv", "index_key,day\nABC,2024-02-02\nDEF,20240202\n")
    said = tidemill("distribute", "prices", inputs, "--paths", "paths.ndjson").out
    assert "completed" in said
    assert "2 files generated · 0 reused" in said
    assert "ABC_20240202.csv" in said
    views = [json.loads(line) for line in (tidemill.folder / "paths.ndjson").read_text().splitlines()]
    assert [(one["input"]["index_key"], one["rows"]) for one in views] == [("ABC", 3), ("DEF", 0)]
    lines = '{"indexKey": "ABC", "day": 20240202}\n{"index_key": "GHI", "day": 20240202}\n'
    said = tidemill("distribute", "prices", "-", answer=lines).out
    assert "1 files generated · 1 reused" in said


async def test_distribute_command_locates_invalid_input_and_exits_1_on_failure(
    tidemill: "Tidemill", db: Database
) -> None:
    tidemill.file("tidemill.toml", DECLARED)
    inputs = tidemill.file("inputs.csv", "index_key,day\nABC,2024-02-30\n")
    assert "the day 20240230 does not exist" in tidemill("distribute", "prices", inputs, code=2).err
    assert 'did you mean "prices"' in tidemill("distribute", "price", inputs, code=2).err
    inputs = tidemill.file("inputs.csv", 'index_key,day\n"A\nB",2024-02-02\nABC,2024-02-02,x\n')
    assert "row 2 on line 4 has more values than the header" in tidemill("distribute", "prices", inputs, code=2).err
    inputs = tidemill.file("inputs.csv", 'index_key,day\nABC,2024-02-02\n"A"x,2024-02-02\n')
    assert 'Cannot parse "inputs.csv": line 3: ' in tidemill("distribute", "prices", inputs, code=2).err
    lines = '{"index_key": "ABC", "day": 20240202}\n\n{"index_key": }\n'
    said = tidemill.refuses("distribute", "prices", tidemill.file("inputs.ndjson", lines))
    assert said == 'Cannot parse "inputs.ndjson": line 3 column 15: Expecting value'
    inputs = tidemill.file("inputs.csv", "index_key,day\nABC,2024-02-02\n")
    assert 'relation "public.prices" does not exist' in tidemill("distribute", "prices", inputs, code=1).out


async def test_distribute_command_reports_first_failed_input_with_reason(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, "CREATE TABLE public.days AS SELECT 1 AS n")
    tidemill.file(
        "tidemill.toml",
        "[datasets.parts]\nquery = \"SELECT 1 / %(n)s::int AS part FROM public.days\"\nfields = { n = 'integer' }\n",
    )
    said = tidemill("distribute", "parts", tidemill.file("inputs.csv", "n\n1\n0\n"), code=1).out
    assert 'input 2, {"n": 0}: ' in said
    assert said.count("division by zero") == 1
    inputs = tidemill.file("inputs.csv", "n\n" + "".join(f"{n}\n" for n in range(8, -1, -1)))
    said = tidemill("distribute", "parts", inputs, "--policy", "continue", code=1).out
    assert "  input 9: " in said
    assert said.count("division by zero") == 1


@pytest.mark.needs_feature("enrichment")
def test_output_path_is_checked_before_match_or_distribute_starts(tidemill: "Tidemill") -> None:
    file = tidemill.file("inputs.csv", "name\nx\n")
    match = ("match", file, "--service", "shop", "--query", "name", "-o", "nowhere/out.csv")
    for words in (match, ("distribute", "any", file, "--paths", "nowhere/paths.ndjson")):
        assert "does not exist" in " ".join(tidemill(*words, code=2).err.split())
