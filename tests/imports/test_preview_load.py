"""Previews under load: wide files and slow servers do not delay the requests of others."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import eventually
from support.import_requests import CSV_TYPE, GOOD, open_shop
from support.loopback_server import Request, Server
from tidemill import Mill
from tidemill.jobs import staged_files, work_gates


@pytest.fixture
def silent_server() -> Iterator[Server]:
    with Server(Request.stall) as server:
        yield server


async def test_preview_of_wide_file_does_not_block_other_requests(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path
) -> None:
    shop = await open_shop(make_api, toy, tmp_path)
    header = ",".join(f"c{n}" for n in range(9_000))
    content = "\n".join([header, *([",".join(["1"] * 9_000)] * 12)]).encode()
    preview = asyncio.create_task(
        shop.ada.post("/v1/imports/preview?resource=people", content=content, headers=CSV_TYPE, timeout=60)
    )
    slowest = 0.0
    while not preview.done():
        started = time.monotonic()
        assert (await shop.ada.get("/health")).status_code == 200
        slowest = max(slowest, time.monotonic() - started)
    answer = preview.result()
    assert answer.status_code == 200, answer.text
    assert (len(answer.json()["columns"]), len(answer.json()["unknown"])) == (9_000, 9_000)
    assert slowest < 3


async def test_preview_with_too_many_columns_is_rejected(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path
) -> None:
    shop = await open_shop(make_api, toy, tmp_path)
    content = ",".join(f"c{n}" for n in range(16_385)).encode() + b"\n"
    answer = await shop.ada.post("/v1/imports/preview?resource=people", content=content, headers=CSV_TYPE)
    assert answer.status_code == 422
    assert answer.json()["detail"] == "The file has 16,385 columns. At most 16,384 are allowed."


async def test_slow_previews_do_not_delay_uploads_and_previews_of_others(
    make_api: Callable[..., Any],
    toy: Mill,
    tmp_path: Path,
    silent_server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_gates, "GATE_WAIT_MAX_S", 1.0)
    monkeypatch.setattr(staged_files, "PREVIEW_DOWNLOAD_TIMEOUT_S", 4)
    shop = await open_shop(make_api, toy, tmp_path, remote_allow=[f"127.0.0.1:{silent_server.port}"])
    body = {"resource": "people", "source": {"url": silent_server.url()}}
    slow = [asyncio.create_task(shop.ada.post("/v1/imports/preview", json=body, timeout=60)) for _ in range(40)]
    bob = await shop.api.user("bob")

    async def has_begun() -> bool:
        return bool(silent_server.requests)

    await eventually(has_begun)
    async with asyncio.timeout(10):
        for _ in range(3):
            answer = await bob.post("/v1/imports/preview?resource=people", content=GOOD, headers=CSV_TYPE)
            assert answer.status_code == 200, answer.text
    answers = await asyncio.gather(*slow)
    assert {answer.status_code for answer in answers} <= {429, 502}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"] == "10"
    assert refused.json()["detail"].startswith("You have too many downloads in progress")
