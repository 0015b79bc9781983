"""Failed rows as files, fixes, and promotion of dry runs, over HTTP."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import httpx2
import pytest

from support import assert_sound, rows
from support.import_requests import CSV_TYPE, GOOD, MIXED, Shop, open_shop
from tidemill import Mill
from tidemill.core.principal import Role
from tidemill.imports import import_records
from tidemill.imports import import_records as failures
from tidemill.store import item_fixes
from tidemill.store.retention import delete_job
from tidemill.tables import resource_registry


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    return await open_shop(make_api, toy, tmp_path)


RAGGED = b'email,name,age\nada@x.org,Ada,36\n"bob","B, ""b""\nb",old\ncy@x.org,Cy\n'


async def errors_csv(shop: Shop, job_id: str) -> list[dict[str, str]]:
    answer = await shop.ada.get(f"/v1/imports/{job_id}/errors.csv")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


def as_csv(found: list[dict[str, str]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(found[0]))
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue().encode()


async def send_back(shop: Shop, job_id: str, content: bytes, **headers: str) -> Any:
    return await shop.ada.post(f"/v1/imports/{job_id}/fixes", content=content, headers=CSV_TYPE | headers)


async def test_import_errors_are_paged_in_file_order(shop: Shop) -> None:
    done = await shop.imported(MIXED)
    assert (done["status"], done["error_records"]) == ("completed_with_errors", 2)
    assert sum(done["errors"].values()) == 2
    first = (await shop.ada.get(f"/v1/imports/{done['job_id']}/errors?pageSize=1")).json()
    no_text = await shop.ada.get(f"/v1/imports/{done['job_id']}/errors?error_codes=a&error_codes=%00")
    assert no_text.status_code == 422, no_text.text
    (row,) = first["rows"]
    assert (row["row"], row["line"], row["input"]) == (2, 3, {"email": "bob", "name": "Bob", "age": "old"})
    assert [(one["field"], one["value"], one["row"], one["line"]) for one in row["errors"]] == [
        ("email", "bob", 2, 3),
        ("age", "old", 2, 3),
    ]
    assert all(one["code"] and one["reason"] and one["retryable"] is False for one in row["errors"])
    rest = await shop.ada.get(f"/v1/imports/{done['job_id']}/errors", params={"after": first["next_page"]})
    assert [one["row"] for one in rest.json()["rows"]] == [3]
    assert "next_page" not in rest.json()


@pytest.mark.parametrize("form", ["csv", "ndjson"])
async def test_import_fix_keeps_columns_named_like_reserved_columns(shop: Shop, form: str) -> None:
    root = await shop.api.user("root", Role.ADMIN)
    await rows(shop.api.db, 'CREATE TABLE shop.odd (id int PRIMARY KEY, "_row" int, "_errors" text, n int)')
    asked = {"resource": "shop.odd", "mapping": json.dumps({"_row": "_row", "_errors": "_errors"})}
    content = b"id,_row,_errors,n\n1,77,mine,x\n2,88,yours,7\n"
    made = await root.post("/v1/imports", params=asked, content=content, headers=CSV_TYPE)
    await shop.work()
    place = f"/v1/imports/{made.json()['job_id']}"
    bad = (await root.get(f"{place}/errors.{form}")).content
    mended = bad.replace(b"1,x,", b"1,9,").replace(b'"n":"x"', b'"n":"9"')
    assert mended != bad
    kind = {"Content-Type": "text/csv" if form == "csv" else "application/x-ndjson"}
    assert (await root.post(f"{place}/fixes", content=mended, headers=kind)).status_code == 200
    await shop.work()
    assert (await root.get(place)).json()["status"] == "completed"
    assert await rows(shop.api.db, "SELECT * FROM shop.odd ORDER BY 1") == [(1, 77, "mine", 9), (2, 88, "yours", 7)]


async def test_fixed_rows_beyond_quota_are_429_and_change_nothing(shop: Shop) -> None:
    root = await shop.api.user("root", Role.ADMIN)
    done = await shop.imported(MIXED)
    assert (await shop.ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1, 2]})).status_code == 202
    assert (await root.patch("/v1/users/ada/quota", json={"open_rows": 3})).status_code == 200
    fixed = b"_row,email,name,age\n2,bob@x.org,Bob,41\n3,cy@x.org,Cy,7\n"
    rejected = await send_back(shop, done["job_id"], fixed)
    assert (rejected.status_code, rejected.json()["quota"]["name"]) == (429, "open_rows")
    assert (await shop.ada.get(f"/v1/imports/{done['job_id']}")).json()["status"] == "completed_with_errors"
    await shop.work()
    assert (await send_back(shop, done["job_id"], fixed)).status_code == 200
    assert (await shop.worked(done["job_id"]))["status"] == "completed"


async def test_import_completes_after_downloaded_errors_are_fixed(shop: Shop) -> None:
    done = await shop.imported(MIXED)
    found = await errors_csv(shop, done["job_id"])
    assert list(found[0]) == ["email", "name", "age", "_row", "_errors", "_error_codes"]
    assert found[0]["_error_codes"] == "email.pattern; age.type"
    assert [one["_row"] for one in found] == ["2", "3"]
    assert found[0]["_errors"].startswith("email: ")
    assert "age: " in found[0]["_errors"]
    found[0] |= {"email": "bob@x.org", "age": "41"}
    found[1] |= {"name": "Cy"}
    answer = await send_back(shop, done["job_id"], as_csv(found))
    assert answer.status_code == 200, answer.text
    assert (answer.json()["state"], answer.json()["items"]) == ("done", 2)
    mended = await shop.worked(done["job_id"])
    assert (mended["status"], mended["error_records"], mended["successful_records"]) == ("completed", 0, 4)
    assert [one[0] for one in await shop.people()] == ["ada@x.org", "bob@x.org", "cy@x.org", "di@x.org"]
    told = (await shop.ada.get(f"/v1/jobs/{done['job_id']}/activity")).json()["activity"]
    assert [(line["verb"], line["details"]["rows"]) for line in told] == [("fix", 2)]
    item = (await shop.ada.get(f"/v1/jobs/{done['job_id']}/items/1")).json()
    assert item["original"]["email"] == "bob"
    assert [item_fixes["by"] for item_fixes in item["fixes"]] == [shop.api.ids["ada"]]
    await assert_sound(shop.api.db)


async def test_import_error_file_preserves_unparsable_and_quoted_rows(shop: Shop) -> None:
    done = await shop.imported(RAGGED)
    found = await errors_csv(shop, done["job_id"])
    assert (found[0]["name"], found[0]["age"]) == ('B, "b"\nb', "old")
    assert (found[1]["email"], found[1]["name"]) == ("cy@x.org,Cy", "")
    page = (await shop.ada.get(f"/v1/imports/{done['job_id']}/errors")).json()
    assert [(row["row"], row["line"]) for row in page["rows"]] == [(2, 3), (3, 5)]
    found[0] |= {"email": "bob@x.org", "age": "1"}
    found[1] |= {"email": "cy@x.org", "name": "Cy", "age": ""}
    assert (await send_back(shop, done["job_id"], as_csv(found))).status_code == 200
    assert (await shop.worked(done["job_id"]))["status"] == "completed"
    assert ("bob@x.org", 'B, "b"\nb', 1) in await shop.people()


@pytest.mark.parametrize("content_type", ["text/csv", "application/x-ndjson"])
async def test_import_fix_preserves_unchanged_cells_of_error_file(shop: Shop, content_type: str) -> None:
    await rows(shop.api.db, "CREATE TABLE shop.notes (id int PRIMARY KEY, a text, b text, about jsonb, n int NOT NULL)")
    records: list[dict[str, Any]] = [
        {"id": 1, "a": None, "b": "", "about": {"k": [1, 2.50]}, "n": "x"},
        {"id": 2, "a": "", "b": None, "about": "plain", "n": "x"},
        {"id": 3, "a": "t", "b": "7", "about": None, "n": "x"},
        {"id": 4, "a": "t", "b": "u", "about": "17", "n": "x"},
    ]
    content = "".join(json.dumps(one) + "\n" for one in records).replace("2.5", "2.50").encode()
    if content_type == "text/csv":
        content = b'id,a,b,about,n\n1,,"","{""k"":[1,2.50]}",x\n2,"",,"""plain""",x\n3,t,7,,x\n4,t,u,"""17""",x\n'
    root = await shop.api.user("root", Role.ADMIN)
    words = {"resource": "shop.notes", "keep_empty": "true"}
    answer = await root.post("/v1/imports", params=words, content=content, headers={"content-type": content_type})
    assert answer.status_code == 202, answer.text
    await shop.work()
    job_id = answer.json()["job_id"]
    found = list(csv.DictReader(io.StringIO((await root.get(f"/v1/imports/{job_id}/errors.csv")).text, newline="")))
    mended = as_csv([one | {"n": "5"} for one in found])
    answer = await root.post(f"/v1/imports/{job_id}/fixes", content=mended, headers=CSV_TYPE)
    assert answer.status_code == 200, answer.text
    await shop.work()
    assert await rows(shop.api.db, "SELECT id, a, b, about::text, n FROM shop.notes ORDER BY id") == [
        (1, None, "", '{"k": [1, 2.50]}', 5),
        (2, "", None, '"plain"', 5),
        (3, "t", "7", None, 5),
        (4, "t", "u", '"17"', 5),
    ]


async def test_import_error_reports_byte_offset_of_invalid_encoding(shop: Shop) -> None:
    content = "email,name\nzoë@x.org,Zoë\n".encode() + b"bob@x.org,B\xffb\nann@x.org,Ann\n"
    done = await shop.imported(content, encoding="utf-8")
    (row,) = (await shop.ada.get(f"/v1/imports/{done['job_id']}/errors")).json()["rows"]
    (error,) = row["errors"]
    assert (error["row"], error["line"], error["byte_offset"]) == (2, 3, content.index(b"\xff"))
    words = {"resource": "people", "encoding": "utf-8"}
    seen = await shop.ada.post("/v1/imports/preview", params=words, content=content, headers=CSV_TYPE)
    assert seen.json()["rows"][1]["errors"][0]["byte_offset"] == content.index(b"\xff")


async def test_import_row_is_no_duplicate_when_other_row_is_fixed_in_same_file(shop: Shop) -> None:
    done = await shop.imported(b"email,name,age\nann@x.org,Ann,old\nann@x.org,Anna,7\n")
    found = await errors_csv(shop, done["job_id"])
    assert [one["_row"] for one in found] == ["1", "2"]
    found[0] |= {"email": "ann2@x.org", "age": "8"}
    assert (await send_back(shop, done["job_id"], as_csv(found))).status_code == 200
    assert (await shop.worked(done["job_id"]))["status"] == "completed"
    assert await shop.people() == [("ann2@x.org", "Ann", 8), ("ann@x.org", "Anna", 7)]


async def test_import_error_file_can_be_imported_again_after_table_change(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_registry, "CATALOG_CACHE_S", 0.0)
    await rows(shop.api.db, "ALTER TABLE shop.people ALTER name TYPE varchar(2)")
    done = await shop.imported()
    assert done["errors"] == {"name.too_long": 2}
    await rows(shop.api.db, "ALTER TABLE shop.people ALTER name TYPE varchar(20)")
    found = await errors_csv(shop, done["job_id"])
    assert (await shop.imported(as_csv(found)))["status"] == "completed"


async def test_ndjson_import_errors_are_fixed_by_ndjson_with_extra_fields(shop: Shop) -> None:
    people: list[Any] = [{"email": f"p{n}@x.org", "name": "P"} for n in range(150)]
    people += [{"email": "odd", "name": "Odd", "shoe": 9}, ["no", "object"]]
    content = "".join(json.dumps(one) + "\n" for one in people).encode()
    done = await shop.imported(content, headers={"content-type": "application/x-ndjson"})
    assert done["error_records"] == 2
    assert list((await errors_csv(shop, done["job_id"]))[0])[:3] == ["email", "name", "shoe"]
    answer = await shop.ada.get(f"/v1/imports/{done['job_id']}/errors.ndjson")
    first, second = [json.loads(line) for line in answer.text.splitlines()]
    assert (first["shoe"], first["_row"], second["_row"]) == (9, 151, 152)
    assert {error["code"].rpartition(".")[2] for error in first["_errors"]} >= {"unknown_field"}
    mended = [{"_row": 151, "email": "odd@x.org"}, {"_row": 152, "email": "list@x.org", "name": "L"}]
    text = "".join(json.dumps(one) + "\n" for one in mended).encode()
    answer = await send_back(shop, done["job_id"], text, **{"content-type": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text
    again = await shop.worked(done["job_id"])
    assert again["error_records"] == 1, "omitted fields keep their values, the shoe too"
    assert ("list@x.org", "L", None) in await shop.people()


async def test_import_fix_with_unmatched_rows_changes_nothing_and_reports_all(shop: Shop) -> None:
    done = await shop.imported(MIXED)
    job_id = done["job_id"]
    text = b"email,name,_row\nbob@x.org,Bob,2\nx@x.org,X,1\ny@x.org,Y,77\nz@x.org,Z,2\nw@x.org,W,\nv@x.org,V,two\n"
    answer = await send_back(shop, job_id, text)
    assert answer.status_code == 422
    problems = [error["detail"] for error in answer.json()["errors"]]
    assert len(problems) == 5
    assert {"row 1 is done: only failed rows can be fixed", "line 5: row 2 appears more than once"} <= set(problems)
    assert " changed: " in answer.json()["detail"]
    for content, because in [
        (b"email,name\nbob@x.org,Bob\n", "_row"),
        (b"email,shoe,_row\nbob@x.org,9,2\n", "shoe"),
        (b"email,_row\n", "no row"),
        (b"", "empty"),
        (b"email,_row\nx@x.org,2,extra\n", "3 fields"),
    ]:
        refused = await send_back(shop, job_id, content)
        assert refused.status_code == 422
        assert because in refused.text
    assert (await shop.worked(job_id))["error_records"] == 2
    assert await rows(shop.api.db, "SELECT * FROM tidemill.item_fix") == []
    assert len(shop.stored()) == 1, "no file of fixed rows is stored"


async def test_import_fix_accepts_subset_of_columns_and_other_layout(shop: Shop) -> None:
    done = await shop.imported(MIXED)
    answer = await shop.ada.post(
        f"/v1/imports/{done['job_id']}/fixes",
        data={"delimiter": ";"},
        files={"file": ("mended.txt", b"_row;name;_note\n3;Cy;better so\n", "text/plain")},
    )
    assert answer.status_code == 200, answer.text
    mended = await shop.worked(done["job_id"])
    assert (mended["error_records"], mended["status"]) == (1, "completed_with_errors")
    assert ("cy@x.org", "Cy", 7) in await shop.people()
    again = await send_back(shop, done["job_id"], b"_row,name\n3,Cy\n")
    assert "row 3 is done" in again.text


async def test_import_error_download_spans_pages_and_aborts_on_failure(shop: Shop) -> None:
    text = b"email,name\n" + b"".join(b"p%d,P\n" % n for n in range(1200))
    done = await shop.imported(text)
    found = await errors_csv(shop, done["job_id"])
    assert [one["_row"] for one in found] == [str(n) for n in range(1, 1201)]
    assert (await send_back(shop, done["job_id"], as_csv(found))).json()["items"] == 1200
    assert (await shop.worked(done["job_id"]))["error_records"] == 1200
    true_list, calls = failures.list_failed_rows, []

    async def breaks(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("the disk is gone")
        return await true_list(*args, **options)

    with patch.object(failures, "list_failed_rows", breaks), pytest.raises(httpx2.RemoteProtocolError):
        await shop.ada.get(f"/v1/imports/{done['job_id']}/errors.csv")


async def test_dry_run_writes_nothing_and_promotes_once_with_fixed_rows(shop: Shop) -> None:
    trial = await shop.imported(MIXED, validate_only=True)
    assert (trial["status"], trial["validate_only"], trial["error_records"]) == ("completed_with_errors", True, 2)
    assert await shop.people() == []
    assert (await send_back(shop, trial["job_id"], b"_row,email,age\n2,bob@x.org,41\n")).status_code == 200
    refused = await shop.ada.post(f"/v1/imports/{trial['job_id']}/promote")
    assert refused.status_code == 409, "it is open again"
    await shop.work()
    promoted = await shop.ada.post(f"/v1/imports/{trial['job_id']}/promote")
    assert promoted.status_code == 202, promoted.text
    again = await shop.ada.post(f"/v1/imports/{trial['job_id']}/promote")
    assert (again.status_code, again.json()["job_id"]) == (200, promoted.json()["job_id"])
    assert len(shop.stored()) == 2
    await shop.ada.delete(f"/v1/jobs/{trial['job_id']}")  # the promoted import does not need the dry run
    live = await shop.worked(promoted.json()["job_id"])
    assert (live["validate_only"], live["idempotency_key"], live["error_records"]) == (False, None, 1)
    assert live["promoted_from"] == trial["job_id"]
    assert await shop.people() == [("ada@x.org", "Ada", 36), ("bob@x.org", "Bob", 41), ("di@x.org", "Di", None)]
    assert (await shop.ada.post(f"/v1/imports/{live['job_id']}/promote")).status_code == 409, "it is not a dry run"
    await assert_sound(shop.api.db)


async def test_import_reprocess_accepts_duplicate_after_other_row_was_fixed(shop: Shop) -> None:
    done = await shop.imported(b"email,name,age\nada@x.org,Ada,old\nada@x.org,Di,36\n")
    assert done["errors"] == {"age.type": 1, "email.duplicate": 1}
    assert (await send_back(shop, done["job_id"], b"email,age,_row\ncy@x.org,1,1\n")).status_code == 200
    assert (await shop.worked(done["job_id"]))["errors"] == {"email.duplicate": 1}
    assert (await shop.ada.post(f"/v1/imports/{done['job_id']}/reprocess", json={})).is_success
    assert (await shop.worked(done["job_id"]))["status"] == "completed"
    assert await shop.people() == [("ada@x.org", "Di", 36), ("cy@x.org", "Ada", 1)]


async def test_import_rows_fixed_to_same_key_keep_first_and_fail_second(shop: Shop) -> None:
    await shop.imported(b"email,name\nada@x.org,Old\n")
    done = await shop.imported(b"email,name\nada,First\nada2,Second\n", mode="upsert")
    mended = b"email,_row\nada@x.org,2\nada@x.org,1\n"
    assert (await send_back(shop, done["job_id"], mended)).status_code == 200
    worked = await shop.worked(done["job_id"])
    assert (worked["errors"], worked["effects"]["updated"]) == ({"email.duplicate": 1}, 1)
    assert await shop.people() == [("ada@x.org", "First", None)]


@pytest.mark.parametrize("verb", ["find_import_origins", "copy_item_fixes"])
async def test_dry_run_deleted_during_promotion_returns_404_and_creates_no_import(shop: Shop, verb: str) -> None:
    trial = await shop.imported(GOOD, validate_only=True)
    module = {"find_import_origins": import_records, "copy_item_fixes": item_fixes}[verb]
    real = getattr(module, verb)

    async def late(*args: Any) -> Any:
        await shop.api.db.run(delete_job, UUID(trial["job_id"]))
        return await real(*args)

    with patch.object(module, verb, late):
        answer = await shop.ada.post(f"/v1/imports/{trial['job_id']}/promote")
    assert answer.status_code == 404, answer.text
    assert (await shop.ada.get("/v1/imports")).json()["imports"] == []
    assert len(shop.stored()) == 1, "but for the file of the trial, which waits to be cleared away"
