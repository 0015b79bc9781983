"""The commands submit, jobs, watch and items."""

import gzip
import json
import re
from typing import TYPE_CHECKING

import pytest

from support import assert_sound, rows
from tidemill import Mill
from tidemill.store.database import Database
from tidemill.testing import drain

if TYPE_CHECKING:
    from support.command import Tidemill


async def test_submit_command_stores_rows_and_items_command_shows_outcomes(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    file = tidemill.file("rows.ndjson", '{"n": 1}\n{"n": 2, "as": "failed"}\nnot json\n{"n": 4, "as": "not_found"}\n')
    key = tidemill("submit", "test", file, "--app", "app:mill", "--priority", "5", "--params", '{"a": 1}').out.strip()
    assert key in tidemill("jobs", "--open").out
    await drain(cli_mill, db=db)
    watched = tidemill("watch", key, code=1).out
    assert "completed_with_errors" in watched
    assert re.search("1 . bad", watched)
    assert re.search("1 . invalid", watched)
    found = [json.loads(line) for line in tidemill("items", key).out.splitlines()]
    assert [(item["seq"], item["status"]) for item in found] == [
        (0, "done"),
        (1, "failed"),
        (2, "failed"),
        (3, "not_found"),
    ]
    assert found[2]["error"]["reason"].startswith("Row is not valid JSON")
    assert await rows(db, "SELECT priority, params FROM tidemill.job") == [(5, {"a": 1})]
    await assert_sound(db)


async def test_watch_command_exits_0_when_job_completes(tidemill: "Tidemill", cli_mill: Mill, db: Database) -> None:
    file = tidemill.file("people.csv", 'id,name\n1,Ann\n2,"Bob\nthe 2nd"\n')
    key = tidemill("submit", "sparse", file, "--app", "app:mill").out.strip()
    tab = tidemill.file("people.txt", "id\tname\n1\tAnn\n")
    tabbed = tidemill("submit", "sparse", tab, "--format", "tsv").out.strip()
    await drain(cli_mill, db=db)
    assert "2 done of 2" in tidemill("watch", key).out
    assert "1 done of 1" in tidemill("watch", tabbed).out
    listed = tidemill("jobs").out
    assert listed.index(tabbed) < listed.index(key), "newest first"
    assert "completed" in listed
    assert "No jobs yet" in tidemill("jobs", "--open").out
    assert await rows(db, "SELECT DISTINCT sparse FROM tidemill.job") == [(True,)]
    stored = [json.loads(line)["input"] for line in tidemill("items", key, "--status", "done").out.splitlines()]
    assert stored == [{"id": "1", "name": "Ann"}, {"id": "2", "name": "Bob\nthe 2nd"}]


async def test_submit_command_detects_encoding_delimiter_and_compression(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    text = "id;name\n1;Jürgen\n2;Käthe\n3;Björn\n"
    file = tidemill.file("leute.csv.gz", gzip.compress(text.encode("cp1252")))
    key = tidemill("submit", "sparse", file, "--app", "app:mill").out.strip()
    await drain(cli_mill, db=db)
    stored = [json.loads(line)["input"] for line in tidemill("items", key, "--status", "done").out.splitlines()]
    assert stored == [{"id": "1", "name": "Jürgen"}, {"id": "2", "name": "Käthe"}, {"id": "3", "name": "Björn"}]
    ((layout,),) = await rows(db, "SELECT source->'layout' FROM tidemill.job")
    assert (layout["encoding"], layout["delimiter"], layout["compression"]) == ("cp1252", ";", "gzip")


async def test_items_command_accepts_status_aliases_and_limit(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    inputs = [{"n": n, "as": "failed" if n % 2 else "done"} for n in range(10)]
    key = (await cli_mill.job_async(await cli_mill.submit_async("test", inputs))).key
    await drain(cli_mill, db=db)
    assert len(tidemill("items", key, "--status", "DLQ").out.splitlines()) == 5
    assert len(tidemill("items", key, "--status", "succeeded", "--limit", "3").out.splitlines()) == 3
    assert tidemill("items", key, "--status", "pending").out == ""
    assert 'unknown status "doen"' in tidemill.refuses("items", key, "--status", "doen")


async def test_watch_command_prints_error_codes_without_markup(
    tidemill: "Tidemill", cli_mill: Mill, db: Database
) -> None:
    job_id = await cli_mill.submit_async(
        "test", [{"as": "failed", "code": "[/odd]"}, {"as": "failed", "code": "[bold]x"}]
    )
    await drain(cli_mill, db=db)
    said = tidemill("watch", str(job_id), code=1).out
    assert "[/odd]" in said
    assert "[bold]x" in said


GOOD_FILE = "rows.ndjson"
REFUSED = [
    (["nope", GOOD_FILE], 'No worker has registered a handler for kind "nope"'),
    (["nope", GOOD_FILE, "--app", "app:mill"], 'No handler for kind "nope". Known kinds: sparse, test'),
    (["test", GOOD_FILE, "--app", "gone:mill"], 'Module "gone" not found'),
    (["test", GOOD_FILE, "--app", "app:milk"], 'Module "app" has no "milk". It has the mill app:mill.'),
    (["test", "rows.odd", "--app", "app:mill"], 'Cannot detect the format of "rows.odd"'),
    (["test", GOOD_FILE, "--app", "app:mill", "--format", "xml"], "xml"),
    (["test", GOOD_FILE, "--app", "app:mill", "--params", "{"], "--params is not valid JSON"),
    (["test", GOOD_FILE, "--app", "app:mill", "--params", "[1]"], "--params must be a JSON object"),
    (["test", GOOD_FILE, "--app", "app:mill", "--params", '{"a": NaN}'], "--params"),
    (["test", GOOD_FILE, "--app", "app:mill", "--policy", "explode"], 'Unknown failure policy "explode"'),
    (["test", GOOD_FILE, "--app", "app:mill", "--policy", "tolerate"], "requires max_failed or max_percent"),
    (
        ["test", GOOD_FILE, "--app", "app:mill", "--policy", "tolerate:few"],
        "the limit must be a number or a percentage",
    ),
    (["test", GOOD_FILE, "--app", "app:mill", "--policy", "tolerate:nan%"], "number"),
    (["test", GOOD_FILE, "--app", "app:mill", "--priority", "101"], "priority must be from -100 to 100"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
async def test_invalid_submit_command_is_rejected_on_one_line_and_stores_nothing(
    tidemill: "Tidemill", db: Database, arguments: list[str], message: str
) -> None:
    tidemill.file(GOOD_FILE, '{"n": 1}\n')
    tidemill.file("rows.odd", '{"n": 1}\n')
    assert message in tidemill.refuses("submit", *arguments)
    assert await rows(db, "SELECT 1 FROM tidemill.job") == []
    assert tidemill.stored() == [], "no file is stored for a rejected submission"


def test_submit_command_rejects_missing_file(tidemill: "Tidemill") -> None:
    assert "does not exist" in tidemill("submit", "test", "gone.csv", code=2).err


async def test_job_argument_accepts_key_id_or_unique_id_prefix(tidemill: "Tidemill", cli_mill: Mill) -> None:
    job = await cli_mill.job_async(await cli_mill.submit_async("test", [{}]))
    for name in (job.key, job.key.lower(), str(job.id), job.id.hex, job.id.hex[:13]):
        assert job.key in tidemill("pause", name).out
    for name in ("J19990101_000001", "zzz", "[/x]", "[bold]", "ffff", ""):
        assert f'Unknown job "{name}"' in tidemill.refuses("watch", name)
    await cli_mill.submit_async("test", [{}])
    assert "More than one job ID starts with" in tidemill.refuses("watch", job.id.hex[:4])
