"""A repeated Idempotency-Key identifies the request, even if the referenced file has changed or is gone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jobs.test_submit_routes import files
from support import rows
from support.api import Api, share_with_users
from support.import_requests import GOOD, open_shop, stocked
from tidemill import Mill
from tidemill.distributions.use_cases import make_distribution_use_cases

KEY = {"Idempotency-Key": "k"}
LETTER = {"first_name": "Ada", "sent_on": 20240202}


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    for name in ("a.csv", "b.csv"):
        (folder / name).write_bytes(GOOD)
    return folder


@pytest.fixture
async def api(make_api: Callable[..., Any], toy: Mill, tmp_path: Path, inbox: Path) -> Api:
    return (await open_shop(make_api, toy, tmp_path, sources={"inbox": share_with_users(inbox)})).api


def of(path: str) -> dict[str, Any]:
    return {"source": {"name": "inbox", "path": path}}


@pytest.mark.parametrize(("url", "words"), [("/v1/jobs", {"kind": "echo"}), ("/v1/imports", {"resource": "people"})])
async def test_idempotency_key_returns_first_job_when_source_file_changes_or_is_gone(
    api: Api, ada: httpx2.AsyncClient, inbox: Path, url: str, words: dict[str, Any]
) -> None:
    first = await ada.post(url, json=words | of("a.csv"), headers=KEY)
    assert first.status_code == 202, first.text
    kept = files(api.settings)
    (inbox / "a.csv").write_bytes(GOOD * 2)
    changed = await ada.post(url, json=words | of("a.csv"), headers=KEY)
    (inbox / "a.csv").unlink()
    gone = await ada.post(url, json=words | of("a.csv"), headers=KEY)
    assert (changed.status_code, gone.status_code) == (200, 200), gone.text
    assert gone.headers["location"] == changed.headers["location"] == first.headers["location"]
    other = await ada.post(url, json=words | of("b.csv"), headers=KEY)
    assert other.status_code == 422, "same content, but a different path"
    assert files(api.settings) == kept
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(1,)]


async def test_idempotency_key_returns_first_export_when_table_changes(api: Api, ada: httpx2.AsyncClient) -> None:
    asked = {"resource": "people", "fields": ["email", "age"]}
    first = await ada.post("/v1/exports", json=asked, headers=KEY)
    assert first.status_code == 202, first.text
    await rows(api.db, "ALTER TABLE shop.people DROP COLUMN age")
    again = await ada.post("/v1/exports", json=asked, headers=KEY)
    assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"]), again.text
    other = await ada.post("/v1/exports", json={"resource": "people", "fields": ["email"]}, headers=KEY)
    assert other.status_code == 422


async def test_idempotency_key_returns_first_distribution_when_dataset_is_removed(
    make_api: Callable[..., Any], tmp_path: Path
) -> None:
    api = await stocked(make_api, tmp_path)
    ada = await api.user("ada")
    asked = {"dataset": "letters", "inputs": [LETTER]}
    first = await ada.post("/v1/distributions", json=asked, headers=KEY)
    assert first.status_code == 202, first.text
    del api.app.state.runtime.get(make_distribution_use_cases)._datasets["letters"]
    again = await ada.post("/v1/distributions", json=asked, headers=KEY)
    assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"]), again.text
    other = asked | {"inputs": [LETTER, LETTER | {"edition": 2}]}
    assert (await ada.post("/v1/distributions", json=other, headers=KEY)).status_code == 422
    assert await rows(api.db, "SELECT count(*) FROM tidemill.item") == [(1,)]
