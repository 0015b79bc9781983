"""HTTP routes of watches: results of scans, access of users, and no secrets."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support import import_requests as importing
from support import rows
from support.api import Api, share_with_users
from tidemill import Mill
from tidemill.core.principal import Role
from tidemill.telemetry.events import subscribe
from tidemill.testing import drain
from tidemill.watches import use_cases
from tidemill.watches.scanner import load_watches

DECLARED = """
[watches.nightly]
source = "inbox"
pattern = "*.csv"
job = { kind = "echo" }
owner = "ada"
stable_for = "0s"
[watches.others]
source = "ftp://mill@127.0.0.1:1/out"
password_env = "FTP_WORD"
job = { kind = "echo" }
owner = "bob"
every = "manual"
"""
SECRET = "s3cr3t-w0rd"
Make = Callable[..., Awaitable[Api]]


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


@pytest.fixture
async def api(make_api: Make, tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setenv("FTP_WORD", SECRET)
    declared = tmp_path / "watches.toml"
    declared.write_text(DECLARED)
    return await make_api(config=declared, sources={"inbox": share_with_users(inbox)})


async def scan(who: httpx2.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    answer = await who.post("/v1/ingestion/scan", json=body)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["scans"])


async def test_watch_scan_reports_found_submitted_and_processed_files(
    api: Api, ada: httpx2.AsyncClient, toy: Mill, inbox: Path
) -> None:
    (inbox / "a.csv").write_text("n\n1\n2\n")
    (first,) = await scan(ada)
    assert (first["name"], first["found"], first["submitted"]) == ("nightly", 1, 0)
    assert [(file["path"], file["state"]) for file in first["files"]] == [("a.csv", "seen")]
    assert "stops changing" in first["files"][0]["status"]
    (second,) = await scan(ada, name="nightly")
    job_id = second["files"][0]["job_id"]
    assert (await ada.get(f"/v1/jobs/{job_id}")).json()["user_id"] == api.ids["ada"]
    await drain(toy, db=api.db)
    (third,) = await scan(ada)
    assert [(file["state"], file["moved_to"]) for file in third["files"]] == [("processed", "processed/a.csv")]


async def test_watch_scan_reports_problem_when_time_runs_out(
    api: Api, ada: httpx2.AsyncClient, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inbox / "a.csv").write_text("n\n1\n2\n")
    with monkeypatch.context() as hurried:
        hurried.setattr(use_cases, "SCAN_REQUEST_TIMEOUT_S", 0.0)
        (cut,) = await scan(ada)
    assert cut["found"] == 0
    assert cut["problem"] == "The scan ran out of time before it listed all files; the next scan lists them again"
    (complete,) = await scan(ada)
    assert (complete["found"], complete["problem"]) == (1, None)


async def test_watch_list_shows_last_scan_and_file_counts(api: Api, ada: httpx2.AsyncClient, inbox: Path) -> None:
    (before,) = (await ada.get("/v1/sources")).json()["sources"]
    assert (before["last_scan_at"], before["files"], before["every_s"]) == (None, {}, 60)
    (inbox / "a.csv").write_text("n\n1\n")
    (inbox / "b.csv").write_text("n\n1\n")
    await scan(ada)
    (after,) = (await ada.get("/v1/sources")).json()["sources"]
    assert (after["files"], after["found"], after["problem"], after["source"]) == ({"seen": 2}, 2, None, "inbox")
    assert after["last_scan_at"] < after["next_scan_at"]


async def test_watch_file_list_is_paged_and_filtered_by_state(api: Api, ada: httpx2.AsyncClient, inbox: Path) -> None:
    for number in range(7):
        (inbox / f"{number}.csv").write_text("n\n1\n")
    await scan(ada)
    seen, after = [], ""
    while True:
        page = (await ada.get(f"/v1/sources/nightly/files?state=&page_size=3&after={after}")).json()
        seen += [file["path"] for file in page["files"]]
        if "next_page" not in page or page["next_page"] is None:
            break
        after = page["next_page"]
    assert sorted(seen) == [f"{number}.csv" for number in range(7)]
    assert (await ada.get("/v1/sources/nightly/files?state=failed")).json()["files"] == []
    assert (await ada.get("/v1/sources/nightly/files?state=eaten")).status_code == 422
    assert (await ada.get("/v1/sources/nightly/files?after=WyJ4Il0")).status_code == 422


async def test_watches_are_listed_and_scanned_only_by_owner_or_admin(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    root = await api.user("root", Role.ADMIN)
    carl = await api.user("carl")

    async def names(who: httpx2.AsyncClient) -> list[str]:
        return [one["name"] for one in (await who.get("/v1/sources")).json()["sources"]]

    assert [await names(who) for who in (ada, bob, carl, root)] == [
        ["nightly"],
        ["others"],
        [],
        ["nightly", "others"],
    ]
    assert (await ada.post("/v1/ingestion/scan", json={"name": "others"})).status_code == 404
    assert (await ada.get("/v1/sources/others/files")).status_code == 404
    assert await scan(carl) == []
    assert [one["name"] for one in await scan(root)] == ["nightly", "others"]


@pytest.mark.needs_feature("imports")
async def test_watch_created_import_appears_in_import_routes(
    make_api: Make, tmp_path: Path, inbox: Path, toy: Mill
) -> None:
    declared = tmp_path / "imports.toml"
    watched = 'source = "inbox"\nimport = { resource = "people" }\nowner = "ada"\nmarker = ".done"\n'
    declared.write_text(importing.DECLARED + "[watches.people]\n" + watched)
    api = await make_api(config=declared, sources={"inbox": share_with_users(inbox)})
    await rows(api.db, importing.TABLES)
    ada = await api.user("ada")
    (inbox / "people.csv").write_bytes(importing.MIXED)
    (inbox / "people.csv.done").touch()
    (report,) = await scan(ada, name="people")
    await drain(toy, db=api.db)
    job = (await ada.get(f"/v1/imports/{report['files'][0]['job_id']}")).json()
    assert (job["status"], job["total_records"], job["error_records"]) == ("completed_with_errors", 4, 2)
    (listed,) = (await ada.get("/v1/imports")).json()["imports"]
    assert listed["resource_type"] == "people"


async def test_watch_password_never_appears_in_responses_events_or_database(
    api: Api, bob: httpx2.AsyncClient, toy: Mill
) -> None:
    events: list[Any] = []
    stop = subscribe(events.append)
    try:
        (report,) = await scan(bob)
    finally:
        stop()
    assert "connection failed" in report["problem"]
    shown = (await bob.get("/v1/sources")).text + (await bob.get("/v1/sources/others/files")).text
    stored = await api.db.run(_everything)
    for text in (json.dumps(report), shown, repr(events), stored, repr(api.app.state.runtime.get(load_watches))):
        assert SECRET not in text
    assert "watch.failed" in [name for name, _ in events]


async def _everything(conn: Any) -> str:
    cursor = await conn.execute(
        b"SELECT w::text, (SELECT string_agg(f::text, ' ') FROM tidemill.watch_file f) FROM tidemill.watch w"
    )
    return str(await cursor.fetchall())
