"""Selections of items: counted, exported, cancelled and reprocessed with the same parameters."""

import csv
import io
from typing import Any

import httpx2
import pytest

from support import assert_sound, eventually, rows
from support.api import Api
from tidemill import Fail, Item, Mill, NotFound, Skip
from tidemill.config import Settings
from tidemill.store import workers
from tidemill.testing import drain


async def submitted(who: httpx2.AsyncClient, inputs: list[Any]) -> str:
    return str((await who.post("/v1/jobs", json={"kind": "echo", "inputs": inputs})).json()["id"])


ODD = b"""UPDATE tidemill.outcome SET error = jsonb_set(error::jsonb, '{code}', '"odd"')
WHERE job_id = %s AND seq %% 2 = 1 AND status = 'failed'"""
SUMS = b"""UPDATE tidemill.job_tally SET codes = '{"exhausted": 2, "odd": 2}' WHERE job_id = %s"""


@pytest.fixture
async def job(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> str:
    """Create six rows; the first four fail, two with each of two error codes."""
    inputs: list[Any] = [{"sku": f"AB-{n}", "fail": "x"} for n in range(4)] + [{"sku": "AB-4"}, {"sku": "CD-5"}]
    made = await submitted(ada, inputs)
    await drain(toy, db=api.db)
    async with api.db.transaction() as conn:  # give the failures two different codes
        await conn.execute(ODD, [made])
        await conn.execute(SUMS, [made])
    return made


async def count(who: httpx2.AsyncClient, job: str, **asked: Any) -> int:
    answer = await who.post(f"/v1/jobs/{job}/selection/count", json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["is_complete"]
    return int(answer.json()["items"])


async def exported(api: Api, toy: Mill, who: httpx2.AsyncClient, job: str, asked: Any) -> list[str]:
    """Export a selection and return the skus in the file."""
    answer = await who.post(f"/v1/jobs/{job}/export", json=asked)
    assert answer.status_code == 202, answer.text
    await drain(toy, db=api.db)
    file = await who.get(f"{answer.headers['location']}/download")
    assert file.status_code == 200, file.text
    return [row["Row"] if "Row" in row else next(iter(row.values())) for row in csv.DictReader(io.StringIO(file.text))]


async def ended(who: httpx2.AsyncClient, answer: httpx2.Response) -> dict[str, Any]:
    """Return an operation after it has finished."""
    assert answer.status_code in (200, 202), answer.text
    told: dict[str, Any] = {}

    async def is_over() -> bool:
        told.update((await who.get(answer.headers["location"])).json())
        return bool(told["state"] != "running")

    await eventually(is_over)
    return told


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        ({"statuses": ["failed"], "error_codes": ["odd"]}, [1, 3]),
        ({"statuses": ["failed"], "except": [1]}, [0, 2, 3]),
        ({"item_ids": [0, 5]}, [0, 5]),
        ({"key": "AB*", "except": [0, 1]}, [2, 3, 4]),
        ({"key": "AB-3", "statuses": ["failed"]}, [3]),
        ({"key": "AB*", "error_codes": ["odd"], "item_ids": [1, 2, 5]}, [1]),
        ({"ranges": [[2, 3], [5, 900]]}, [2, 3, 5]),
        ({"ranges": [[1, 2], [2, 4]], "item_ids": [0], "except": [3]}, [0, 1, 2, 4]),
        ({"ranges": [[0, 4]], "statuses": ["failed"], "error_codes": ["odd"]}, [1, 3]),
        ({"ranges": [[3, 5]], "key": "AB*"}, [3, 4]),
        ({"ranges": []}, []),
    ],
)
async def test_selection_count_equals_exported_rows(
    api: Api, ada: httpx2.AsyncClient, toy: Mill, job: str, asked: dict[str, Any], rows: list[int]
) -> None:
    named = {name: [f"{job}:{seq}" for seq in asked[name]] for name in ("item_ids", "except") if name in asked}
    assert await count(ada, job, **asked | named) == len(rows)
    found = await exported(api, toy, ada, job, asked | named)
    assert len(found) == len(rows)


@pytest.fixture
async def mixed_job(api: Api, ada: httpx2.AsyncClient, settings: Settings) -> str:
    """Create a job with items of every settled status: failures that are retryable, permanent and of two codes."""
    mill = Mill(settings)

    @mill.handler("mixed", max_attempts=1, max_attempts_not_found=1)
    async def mixed(item: Item) -> Any:
        match item.input["sku"].partition("-")[0]:
            case "permanent":
                raise Fail("never", code="odd")
            case "temporary":
                raise Fail("later", code="odd" if item.seq % 2 else "even", retryable=True)
            case "skip":
                return Skip("not wanted")
            case "gone":
                return NotFound()
        return {"ok": True}

    await api.db.run(workers.register_kinds, mill.registry.create_all())
    kinds = ("permanent", "temporary", "skip", "gone", "fine")
    inputs = [{"sku": f"{name}-{n}"} for n in range(3) for name in kinds]
    made = await ada.post("/v1/jobs", json={"kind": "mixed", "inputs": inputs})
    await drain(mill, db=api.db)
    return str(made.json()["id"])


SELECTIONS: list[dict[str, Any]] = [
    {},
    {"statuses": ["failed"]},
    {"statuses": ["failed", "skipped", "done"]},
    {"statuses": ["done", "not_found"]},
    {"error_codes": ["odd"]},
    {"error_codes": ["odd", "not_found"], "statuses": ["failed", "not_found"]},
    {"error_codes": ["odd"], "statuses": ["done"]},
    {"error_codes": ["not_found"], "statuses": ["not_found"]},
    {"key": "temporary*"},
    {"ranges": [[0, 7]], "statuses": ["failed", "skipped", "not_found"]},
    {"ranges": [[0, 7]], "error_codes": ["odd"]},
    {"except": [0, 1]},
    {"item_ids": [0, 1, 4], "statuses": ["failed", "done"]},
    {"key": "permanent*", "error_codes": ["odd"], "except": [5]},
]


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("asked", SELECTIONS, ids=str)
async def test_selection_count_equals_items_that_reprocess_takes(
    api: Api, ada: httpx2.AsyncClient, mixed_job: str, asked: dict[str, Any], reset: bool
) -> None:
    named = {name: [f"{mixed_job}:{seq}" for seq in asked[name]] for name in ("item_ids", "except") if name in asked}
    body = asked | named | ({} if reset else {"reset_attempts": False})
    counted = await count(ada, mixed_job, to="reprocess", **body)
    scope = {"scope": "items"} if "item_ids" in asked or "ranges" in asked else {}
    operation = await ended(ada, await ada.post(f"/v1/jobs/{mixed_job}/reprocess", json=body | scope))
    assert operation["items"] == counted
    await assert_sound(api.db)


async def test_selection_count_of_cancelled_items_equals_items_that_reprocess_takes(
    api: Api, ada: httpx2.AsyncClient
) -> None:
    job = await submitted(ada, [{"sku": f"AB-{n}"} for n in range(10)])
    await ada.post(f"/v1/jobs/{job}/selection/cancel", json={"ranges": [[3, 6]]})
    for asked in ({"statuses": ["cancelled"], "error_codes": ["odd"]}, {"statuses": ["cancelled"]}):
        body = asked | {"reset_attempts": False}
        counted = await count(ada, job, to="reprocess", **body)
        assert (await ada.post(f"/v1/jobs/{job}/reprocess", json=body)).json()["items"] == counted
    await assert_sound(api.db)


async def test_item_key_filter_matches_value_or_prefix_with_other_filters(ada: httpx2.AsyncClient, job: str) -> None:
    async def listed(**words: Any) -> list[int]:
        return [item["seq"] for item in (await ada.get(f"/v1/jobs/{job}/items", params=words)).json()["items"]]

    assert await listed(key="AB-2") == [2]
    assert await listed(key="AB") == []
    assert await listed(key="AB*") == [0, 1, 2, 3, 4]
    assert await listed(key="AB*", statuses="done") == [4]
    assert await listed(key="AB*", error_codes="odd") == [1, 3]
    assert await listed(key="AB*", seq=3) == [3, 4]
    first = (await ada.get(f"/v1/jobs/{job}/items", params={"key": "AB*", "page_size": 2})).json()
    assert await listed(key="AB*", page_size=2, after=first["next_page"]) == [2, 3]


async def test_item_key_filter_finds_fixed_row_by_old_and_new_value(ada: httpx2.AsyncClient, job: str) -> None:
    await ada.patch(f"/v1/jobs/{job}/items/1", json={"input": {"sku": "ZZ-1", "café": 'say "x"'}})
    for key in ("ZZ-1", "AB-1", 'say "x"'):
        found = (await ada.get(f"/v1/jobs/{job}/items", params={"key": key})).json()["items"]
        assert [item["seq"] for item in found] == [1], key


async def test_selection_cancel_cancels_pending_items_that_can_be_reprocessed(
    api: Api, ada: httpx2.AsyncClient
) -> None:
    job = await submitted(ada, [{"sku": f"AB-{n}"} for n in range(10)])
    but = {"except": [f"{job}:2"], "key": "AB*", "statuses": ["pending"]}
    assert await count(ada, job, to="cancel", **but) == 9
    answer = await ada.post(f"/v1/jobs/{job}/selection/cancel", json=but)
    assert (answer.status_code, answer.json()["verb"], answer.json()["items"]) == (200, "cancel", 9)
    assert (await ada.get(answer.headers["location"])).json()["predicate"]["key"] == "AB*"
    assert (await ada.get(f"/v1/jobs/{job}")).json()["counts"]["cancelled"] == 9
    chosen = {"scope": "items", "item_ids": [f"{job}:4", f"{job}:2"], "statuses": ["cancelled"]}
    assert await count(ada, job, to="reprocess", item_ids=chosen["item_ids"], statuses=["cancelled"]) == 1
    assert (await ada.post(f"/v1/jobs/{job}/reprocess", json=chosen)).json()["items"] == 1
    await assert_sound(api.db)


async def test_selection_of_large_ranges_is_cancelled_and_reprocessed(api: Api, ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, list(range(45_000)))
    most = {"ranges": [[1, 44_998]]}
    assert await count(ada, job, to="cancel", **most) == 44_998
    answer = await ada.post(f"/v1/jobs/{job}/selection/cancel", json=most)
    done = await ended(ada, answer)
    assert (done["items"], done["predicate"]["ranges"]) == (44_998, [[1, 44_998]])
    counts = (await ada.get(f"/v1/jobs/{job}")).json()["counts"]
    assert (counts["pending"], counts["cancelled"]) == (2, 44_998)
    await assert_sound(api.db)

    some = {"scope": "items", "ranges": [[0, 10], [25_000, 44_999]], "statuses": ["cancelled"]}
    assert await count(ada, job, to="reprocess", ranges=some["ranges"], statuses=["cancelled"]) == 20_009
    assert (await ended(ada, await ada.post(f"/v1/jobs/{job}/reprocess", json=some)))["items"] == 20_009
    assert (await ada.get(f"/v1/jobs/{job}")).json()["counts"]["cancelled"] == 24_989
    await assert_sound(api.db)


@pytest.mark.parametrize("ranges", [[[3, 2]], [[1]], [[1, 2, 3]], [[-1, 2]], [[0, 2**63]], [["1", 2]], [[0, 1]] * 101])
@pytest.mark.parametrize("path", ["selection/count", "selection/cancel", "export", "reprocess"])
async def test_selection_with_invalid_range_is_rejected(ada: httpx2.AsyncClient, path: str, ranges: Any) -> None:
    job = await submitted(ada, [1])
    asked = {"ranges": ranges} | ({"scope": "items"} if path == "reprocess" else {})
    assert (await ada.post(f"/v1/jobs/{job}/{path}", json=asked)).status_code == 422


async def test_selection_reprocesses_items_of_cancelled_job_except_excluded(api: Api, ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, list(range(10)))
    await ada.post(f"/v1/jobs/{job}/cancel")
    but = {"statuses": ["cancelled"], "except": [f"{job}:2"]}
    assert await count(ada, job, to="reprocess", **but) == 9
    assert (await ada.post(f"/v1/jobs/{job}/reprocess", json=but)).json()["items"] == 9
    assert (await ada.get(f"/v1/jobs/{job}")).json()["counts"]["cancelled"] == 1
    await assert_sound(api.db)


async def test_selection_count_includes_only_items_action_applies_to(ada: httpx2.AsyncClient, job: str) -> None:
    everything = [f"{job}:{seq}" for seq in range(6)]
    assert await count(ada, job, to="reprocess", item_ids=everything) == 4, "the default of a reprocess"
    assert await count(ada, job, to="reprocess", item_ids=everything, statuses=["failed", "done"]) == 6
    assert await count(ada, job, to="cancel", item_ids=everything) == 0
    assert await count(ada, job, to="reprocess", statuses=["pending"]) == 0
    assert await count(ada, job) == 6


async def test_selection_of_other_users_job_or_invalid_selection_is_rejected(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, job: str
) -> None:
    other = await submitted(ada, [1])
    for path in ("selection/count", "selection/cancel", "export"):
        assert (await bob.post(f"/v1/jobs/{job}/{path}", json={})).status_code == 404
        assert (await ada.post(f"/v1/jobs/{job}/{path}", json={"item_ids": [f"{other}:0"]})).status_code == 422
        assert (await ada.post(f"/v1/jobs/{job}/{path}", json={"key": "\x00"})).status_code == 422
    assert (await ada.post(f"/v1/jobs/{job}/selection/cancel", json={})).status_code == 409
    both = await ada.post(f"/v1/jobs/{job}/export?statuses=failed", json={"statuses": ["done"]})
    assert both.status_code == 422


async def test_error_code_filter_with_comma_works_as_repeated_parameter(
    api: Api, ada: httpx2.AsyncClient, job: str
) -> None:
    change = b'UPDATE tidemill.outcome SET error = \'{"code": "a,b"}\' WHERE job_id = %s AND seq = 1'
    async with api.db.transaction() as conn:
        await conn.execute(change, [job])
    found = await ada.get(f"/v1/jobs/{job}/items?error_codes=a,b&error_codes=")
    assert [item["seq"] for item in found.json()["items"]] == [1]
    assert (await ada.get(f"/v1/jobs/{job}/items?error_codes=a,b")).json()["items"] == []
    assert (await ada.get(f"/v1/jobs/{job}/items?{'error_codes=&' * 101}")).status_code == 422
    for path in (f"/v1/jobs/{job}/items", "/v1/dead-letters"):
        assert (await ada.get(f"{path}?error_codes=a&error_codes=%00")).status_code == 422


@pytest.mark.parametrize("asked", [{"item_ids": ["{own}", "{other}"]}, {"except": ["{own}", "{other}"]}])
@pytest.mark.parametrize("what", ["reprocess", "selection/cancel", "selection/count", "export"])
async def test_selection_with_item_of_other_job_points_at_it_and_changes_nothing(
    api: Api, ada: httpx2.AsyncClient, job: str, what: str, asked: dict[str, list[str]]
) -> None:
    other = await submitted(ada, [1])
    [(field, ids)] = asked.items()
    said: dict[str, Any] = {field: [one.format(own=f"{job}:0", other=f"{other}:0") for one in ids]}
    if what == "reprocess" and field == "item_ids":
        said["scope"] = "items"
    answer = await ada.post(f"/v1/jobs/{job}/{what}", json=said)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"] == [{"pointer": f"#/{field}/1", "detail": f'"{other}:0" is an item of another job'}]
    assert await rows(api.db, "SELECT count(*) FROM tidemill.operation") == [(0,)]
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(2,)]
