"""Imports over HTTP: accepted and rejected requests, and the reported results."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from support import rows
from support.api import Api, share_with_users
from support.import_requests import CSV_TYPE, GOOD, MIXED, Shop, open_shop
from support.loopback_server import Server, ranged
from tidemill import Mill
from tidemill.app.processes import check_declared_resources_match_tables
from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.core.principal import Role
from tidemill.tables import resource_registry
from tidemill.telemetry.events import Event, subscribe

PEOPLE = [("ada@x.org", "Ada", 36), ("bob@x.org", "Bob", 41)]


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "people.csv").write_bytes(GOOD)
    return await open_shop(make_api, toy, tmp_path, sources={"inbox": share_with_users(inbox)})


async def test_import_ignores_column_mapped_to_empty_name(shop: Shop) -> None:
    content = b"email,name,Remarks\nada@x.org,Ada,none\n"
    for trial in (True, False):
        found = await shop.imported(content, mapping=json.dumps({"Remarks": ""}), validate_only=trial)
        assert (found["status"], found["errors"]) == ("completed", {})
    assert await shop.people() == [("ada@x.org", "Ada", None)]


async def test_import_of_body_file_writes_rows_and_reports_details(shop: Shop) -> None:
    answer = await shop.post(headers={"Idempotency-Key": "k-1"})
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/imports/{answer.json()['job_id']}"
    assert answer.headers["retry-after"] == "1"
    done = await shop.worked(answer.json()["job_id"])
    assert await shop.people() == PEOPLE
    assert (done["status"], done["resource_type"], done["mode"]) == ("completed", "people", "insert")
    assert (done["total_records"], done["processed_records"], done["successful_records"]) == (2, 2, 2)
    assert (done["error_records"], done["errors"], done["validate_only"]) == (0, {}, False)
    assert done["idempotency_key"] == "k-1"
    assert done["effects"] == {"inserted": 2, "updated": 0, "unchanged": 0}
    assert done["layout"]["format"] == "csv"
    assert done["mapping"] == {"email": "email", "name": "name", "age": "age"}
    assert done["created_at"] <= done["started_at"] <= done["completed_at"]
    assert done["links"]["errors"] == f"/v1/imports/{done['job_id']}/errors"


async def test_import_form_accepts_camel_case_and_upsert_reports_effects(shop: Shop) -> None:
    await shop.imported()
    words = {"resource": "people", "mode": "upsert", "mapping": '{"E": "email", "N": "name"}', "validateOnly": "false"}
    file = ("people.csv", b"E;N\nada@x.org;Ada\nbob@x.org;Robert\neve@x.org;Eve\n", "text/csv")
    answer = await shop.ada.post("/v1/imports", data=words | {"key": "email"}, files={"file": file})
    assert answer.status_code == 202, answer.text
    done = await shop.worked(answer.json()["job_id"])
    assert done["effects"] == {"inserted": 1, "updated": 1, "unchanged": 1}
    assert done["layout"]["delimiter"] == ";"
    assert await shop.people() == [("ada@x.org", "Ada", 36), ("bob@x.org", "Robert", 41), ("eve@x.org", "Eve", None)]


async def test_import_uses_explicit_layout_parameters(shop: Shop) -> None:
    content = "'a|b'|ada@x.org\rcafé|bob@x.org\r".encode("cp1252")
    said = {"format": "csv", "delimiter": "pipe", "quote": "'", "line_end": "cr", "header": False, "encoding": "cp1252"}
    mapping = json.dumps({"column_1": "name", "column_2": "email"})
    done = await shop.imported(content, mapping=mapping, **said)
    assert done["layout"] == said | {"delimiter": "|", "line_end": "\r", "compression": "none"}
    assert await shop.people() == [("ada@x.org", "a|b", None), ("bob@x.org", "café", None)]


async def test_import_of_json_body_file_takes_parameters_from_query(shop: Shop) -> None:
    people = [{"email": "ada@x.org", "name": "Ada", "age": 36}, {"email": "bob@x.org", "name": "Bob", "age": 41}]
    done = await shop.imported(json.dumps(people).encode(), headers={"content-type": "application/json"})
    assert (done["status"], done["layout"]["format"]) == ("completed", "json")
    assert await shop.people() == PEOPLE


async def test_import_source_can_be_folder_file_or_file_of_own_job(shop: Shop) -> None:
    asked = {"resource": "people", "source": {"name": "inbox", "path": "people.csv"}}
    first = await shop.ada.post("/v1/imports", json=asked)
    assert first.status_code == 202, first.text
    done = await shop.worked(first.json()["job_id"])
    again = {"resource": "people", "mode": "upsert", "source": {"file_id": done["file_id"]}}
    second = await shop.ada.post("/v1/imports", json=again)
    assert second.status_code == 202, second.text
    repeated = await shop.worked(second.json()["job_id"])
    assert repeated["effects"] == {"inserted": 0, "updated": 0, "unchanged": 2}
    assert repeated["file_id"] != done["file_id"], "every job owns its file"
    await shop.ada.delete(f"/v1/jobs/{done['job_id']}")
    assert repeated["file_id"] in shop.stored()


@pytest.mark.needs_feature("exports")
async def test_import_preview_reads_file_of_own_export(shop: Shop) -> None:
    done = await shop.imported(b"email,name,age\nada@x.org,Ada,36\n")
    export = (await shop.ada.post(f"/v1/jobs/{done['job_id']}/export?format=csv")).json()
    await shop.work()
    file_id = (await shop.ada.get(f"/v1/exports/{export['id']}")).json()["file_id"]
    answer = await shop.ada.post("/v1/imports/preview", json={"resource": "people", "source": {"file_id": file_id}})
    assert answer.status_code == 200, answer.text
    assert answer.json()["columns"][:3] == ["email", "name", "age"]


async def test_import_of_other_users_file_returns_404(shop: Shop) -> None:
    done = await shop.imported()
    bob = await shop.api.user("bob")
    for file_id in (done["file_id"], "0" * 32):
        asked = {"resource": "people", "source": {"file_id": file_id}}
        assert (await bob.post("/v1/imports", json=asked)).status_code == 404
    assert (await bob.get(f"/v1/imports/{done['job_id']}")).status_code == 404
    assert (await bob.get("/v1/imports")).json() == {"imports": []}


async def test_import_from_url_hides_secrets_and_rejects_private_addresses(shop: Shop) -> None:
    asked = {"resource": "people", "source": {"url": "http://nowhere.invalid/people.csv?token=s3cret"}}
    answer = await shop.ada.post("/v1/imports", json=asked | {"mode": "upsert"})
    assert answer.status_code == 202, answer.text
    assert (answer.json()["mode"], answer.json()["resource_type"]) == ("upsert", "people")
    done = await shop.worked(answer.json()["job_id"])
    assert done["status"] == "failed"
    assert "nowhere.invalid" in done["failure_reason"]
    assert "s3cret" not in json.dumps(done) + (await shop.ada.get(f"/v1/jobs/{done['job_id']}")).text
    seen = await shop.ada.post("/v1/imports/preview", json=asked)
    assert seen.status_code == 422, "a preview reports it at once"
    for url in (
        "http://127.0.0.1/x.csv",
        "http://[::1]/x.csv",
        "ftp://x.org/a",
        "http://u:p@x.org/a",
        "file:///etc/passwd",
    ):
        refused = await shop.ada.post("/v1/imports", json={"resource": "people", "source": {"url": url}})
        assert refused.status_code == 422, refused.text


async def test_import_from_url_is_previewed_dry_run_and_promoted_without_refetch(
    make_api: Callable[..., Any], settings: Settings, tmp_path: Path
) -> None:
    with Server(ranged(GOOD)) as server:
        allowed = {"remote_allow": [f"127.0.0.1:{server.port}"]}
        shop = await open_shop(make_api, Mill(settings.model_copy(update=allowed)), tmp_path, **allowed)
        asked = {"resource": "people", "source": {"url": server.url("/people.csv")}, "validateOnly": True}
        seen = await shop.ada.post("/v1/imports/preview", json=asked)
        assert (seen.status_code, len(seen.json()["rows"])) == (200, 2), seen.text
        assert not shop.stored()
        trial = await shop.worked((await shop.ada.post("/v1/imports", json=asked)).json()["job_id"])
    assert (trial["status"], trial["effects"]["inserted"]) == ("completed", 2)
    assert (trial["file_name"], trial["layout"]["format"], trial["layout"]["encoding"]) == (
        "people.csv",
        "csv",
        "utf-8",
    )
    fetched = {"is_complete": True, "is_active": False, "bytes": len(GOOD), "total_bytes": len(GOOD)}
    job = (await shop.ada.get(f"/v1/jobs/{trial['job_id']}")).json()
    assert (trial["fetch"], job["fetch"]) == (fetched, fetched)
    live = await shop.ada.post(f"/v1/imports/{trial['job_id']}/promote")
    assert live.status_code == 202, live.text
    done = await shop.worked(live.json()["job_id"])
    assert done["status"] == "completed", "the client does not send the file again"
    assert (done["file_name"], done["layout"]) == (trial["file_name"], trial["layout"])
    assert await shop.people() == PEOPLE


async def test_import_requires_write_grant_on_resource(shop: Shop) -> None:
    root = await shop.api.user("root", Role.ADMIN)
    secrets = b"id,word\n1,x\n"
    assert (await shop.post(resource="nothing")).status_code == 404
    assert (await shop.post(secrets, resource="secrets")).status_code == 404
    assert (await shop.post(resource="staff")).status_code == 403
    assert (await shop.post(resource="shop.people")).status_code == 404, "tables by name are for admins"
    assert (await shop.post(secrets, root, resource="secrets")).status_code == 202
    assert (await shop.post(GOOD, root, resource="shop.people")).status_code == 202
    for forbidden in ("tidemill.job", "pg_catalog.pg_class", "information_schema.tables"):
        refused = await shop.post(GOOD, root, resource=forbidden)
        assert refused.status_code == 422, refused.text
    assert len(shop.stored()) == 2, "of what was accepted"


REFUSED: list[tuple[bytes, dict[str, Any], list[str]]] = [
    (b"", {}, ["file is empty"]),
    (b"\n\n", {}, ["file is empty"]),
    (b"mail,nam\nx,y\n", {}, [r"Column \"mail\" is not a field", r"\"nam\" is not a field", r"\"email\"", r"\"name\""]),
    (b"email,email,name\na,b,c\n", {}, ["email_2"]),
    (b"Email,e-mail,name\na,b,c\n", {}, [r"are all mapped to \"email\""]),
    (GOOD, {"mapping": '{"email": "nowhere"}'}, [r"\"nowhere\", which is not a field"]),
    (GOOD, {"mapping": "[]"}, ["mapping: must be a JSON object"]),
    (GOOD, {"mode": "merge"}, ["mode"]),
    (GOOD, {"duplicates": "some"}, ["duplicates"]),
    (GOOD, {"encoding": "klingon"}, ["klingon"]),
    (GOOD, {"format": "docx"}, ["format"]),
    (GOOD, {"delimiter": "ab"}, ["delimiter"]),
    (GOOD, {"line_end": "x"}, ["line_end"]),
    (GOOD, {"mode": "upsert", "key": "name"}, ["unique index on (name)"]),
    (GOOD, {"mode": "validate_only"}, ["set validate_only=true"]),
    (GOOD, {"key": "nowhere"}, ["nowhere"]),
    (GOOD, {"policy": '{"mode": "tolerate"}'}, ["tolerate"]),
    (GOOD, {"surprise": "1"}, ["surprise: unknown field", '"parameter":"surprise"']),
    (b"PK\x03\x04 not really", {}, ["zip"]),
    (b"\x00\x01\x02" * 100, {"headers": {"content-type": "application/octet-stream"}}, ["format"]),
]


async def test_invalid_import_is_rejected_with_reasons_and_stores_no_file(shop: Shop) -> None:
    for content, parameters, messages in REFUSED:
        answer = await shop.post(content, **dict(parameters))
        assert answer.status_code == 422, answer.text
        for text in messages:
            assert text in answer.text
    assert not shop.stored(), "nothing is left of it"


async def test_import_reports_each_column_problem_as_separate_error(shop: Shop) -> None:
    answer = await shop.post(b"mail,name,shoe\nx,y,z\n")
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 3


async def test_import_of_header_only_file_completes_with_zero_records(shop: Shop) -> None:
    done = await shop.imported(b"email,name\n")
    assert (done["status"], done["total_records"]) == ("completed", 0)


async def test_import_file_over_size_limit_is_rejected_with_413(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path
) -> None:
    shop = await open_shop(make_api, toy, tmp_path, max_file_size_mb=1)
    assert (await shop.post(GOOD + b"x" * (3 << 20))).status_code == 413
    assert not shop.stored()


STRANGE_SOURCES: list[Any] = [
    None,
    {},
    {"name": "inbox"},
    {"path": "people.csv"},
    {"url": "http://x.org/a.csv", "file_id": "0" * 32},
    {"name": "outbox", "path": "people.csv"},
    {"name": "inbox", "path": "../shop.toml"},
    {"file_id": "no"},
]


async def test_import_rejects_missing_or_ambiguous_source(shop: Shop) -> None:
    for source in STRANGE_SOURCES:
        answer = await shop.ada.post("/v1/imports", json={"resource": "people", "source": source})
        assert answer.status_code == 422, answer.text


async def test_concurrent_imports_with_one_idempotency_key_create_one_job(shop: Shop) -> None:
    answers = await asyncio.gather(*(shop.post(headers={"Idempotency-Key": '"same"'}) for _ in range(50)))
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [202]
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert len(shop.stored()) == 1


async def test_import_idempotency_key_with_other_parameters_or_file_is_rejected(shop: Shop) -> None:
    key = {"Idempotency-Key": "k"}
    assert (await shop.post(headers=key)).status_code == 202
    for answer in (await shop.post(headers=key, mode="upsert"), await shop.post(MIXED, headers=key)):
        assert answer.status_code == 422
        assert "already used for a different request" in answer.text
    assert len(shop.stored()) == 1


async def test_import_idempotency_key_returns_first_job_after_table_change(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_registry, "CATALOG_CACHE_S", 0.0)
    key, url = {"Idempotency-Key": "k"}, {"resource": "people", "source": {"url": "http://nowhere.invalid/x.csv"}}
    first = (await shop.post(headers=key)).json()["job_id"]
    fetched = (await shop.ada.post("/v1/imports", json=url, headers={"Idempotency-Key": "u"})).json()["job_id"]
    assert (await shop.post(headers=key)).json()["job_id"] == first
    for change in ("ADD shoe int CHECK (shoe > 30)", "DROP age", "ALTER name TYPE varchar(3)"):
        await rows(shop.api.db, f"ALTER TABLE shop.people {change}")
        again = await shop.post(headers=key)
        assert (again.status_code, again.json().get("job_id")) == (200, first), again.text
        again = await shop.ada.post("/v1/imports", json=url, headers={"Idempotency-Key": "u"})
        assert (again.status_code, again.json().get("job_id")) == (200, fetched), again.text
    assert len(shop.stored()) == 1
    assert (await shop.post()).status_code == 422, "it would not be accepted now"


async def test_repeated_import_creates_new_job_when_first_is_deleted_during_upload(shop: Shop) -> None:
    key = {"Idempotency-Key": "slow", "Content-Type": "text/csv"}
    first = (await shop.post(headers={"Idempotency-Key": "slow"})).json()["job_id"]
    await shop.ada.post(f"/v1/jobs/{first}/cancel")

    async def upload() -> AsyncIterator[bytes]:
        yield GOOD[:5]
        assert (await shop.ada.delete(f"/v1/jobs/{first}")).status_code == 204
        yield GOOD[5:]

    url = "/v1/imports?resource=people&filename=people.csv"
    again = await shop.ada.post(url, content=upload(), headers=key)
    assert again.status_code == 202, again.text
    assert again.json()["job_id"] != first


async def test_import_list_is_paged_and_excludes_other_job_kinds(shop: Shop) -> None:
    await shop.ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1]})
    made = [(await shop.post(mode="upsert")).json()["job_id"] for _ in range(3)]
    first = (await shop.ada.get("/v1/imports?pageSize=2")).json()
    rest = (await shop.ada.get("/v1/imports", params={"after": first["next_page"]})).json()
    assert [one["job_id"] for one in first["imports"] + rest["imports"]] == made[::-1]


async def test_import_pause_resume_and_cancel_change_status(shop: Shop) -> None:
    job_id = (await shop.post()).json()["job_id"]
    for verb, status in (("pause", "paused"), ("resume", "pending"), ("cancel", "cancelled")):
        answer = await shop.ada.post(f"/v1/imports/{job_id}/{verb}")
        assert (answer.status_code, answer.json()["status"]) == (200, status), answer.text
    assert (await shop.ada.post(f"/v1/imports/{job_id}/resume")).status_code == 409
    echo = (await shop.ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1]})).json()["id"]
    assert (await shop.ada.post(f"/v1/imports/{echo}/pause")).status_code == 404, "not every job is an import"


@pytest.mark.parametrize("path", ["imports", "jobs"])
async def test_import_completed_event_is_emitted_when_import_is_cancelled(shop: Shop, path: str) -> None:
    job_id = (await shop.post()).json()["job_id"]
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    answer = await shop.ada.post(f"/v1/{path}/{job_id}/cancel")
    unsubscribe()
    assert answer.status_code == 200, answer.text
    (completed,) = [event.fields for event in events if event.name == "import.completed"]
    assert (str(completed["job"]), completed["resource_type"]) == (job_id, "people")


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_import_completed_event_is_emitted_when_file_was_not_fetched(shop: Shop, is_cancelled: bool) -> None:
    source = {"url": "http://nowhere.invalid/people.csv"}
    answer = await shop.ada.post("/v1/imports", json={"resource": "people", "source": source, "mode": "upsert"})
    job_id = answer.json()["job_id"]
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    if is_cancelled:
        await shop.ada.post(f"/v1/imports/{job_id}/cancel")
    await shop.work()
    unsubscribe()
    (completed,) = [event.fields for event in events if event.name == "import.completed"]
    assert (completed["resource_type"], completed["mode"]) == ("people", "upsert")
    assert completed["status"] == ("cancelled" if is_cancelled else "failed")


async def test_import_reprocess_succeeds_after_conflicting_rows_are_deleted(shop: Shop) -> None:
    await shop.imported()
    again = await shop.imported()
    assert again["errors"] == {"email.exists": 2}
    await rows(shop.api.db, "DELETE FROM shop.people")
    answer = await shop.ada.post(f"/v1/imports/{again['job_id']}/reprocess", json={})
    assert answer.json()["items"] == 2
    assert (await shop.worked(again["job_id"]))["status"] == "completed"


async def test_import_preview_reports_layout_mapping_and_row_errors_storing_nothing(shop: Shop) -> None:
    answer = await shop.ada.post(
        "/v1/imports/preview", params={"resource": "people", "rows": 3}, content=MIXED, headers=CSV_TYPE
    )
    assert answer.status_code == 200, answer.text
    seen = answer.json()
    assert (seen["layout"]["delimiter"], seen["columns"], seen["problems"]) == (",", ["email", "name", "age"], [])
    assert seen["mapping"] == {"email": "email", "name": "name", "age": "age"}
    assert [(row["row"], row["line"], len(row["errors"])) for row in seen["rows"]] == [(1, 2, 0), (2, 3, 2), (3, 4, 1)]
    assert {error["field"] for error in seen["rows"][1]["errors"]} == {"email", "age"}
    assert not shop.stored()
    assert await shop.people() == []


async def test_import_preview_applies_value_options_of_import(shop: Shop) -> None:
    content = b'email,name,age\n\'@x.org,"",1\n'  # once restored, no address
    words = {"resource": "people"}
    answer = await shop.ada.post("/v1/imports/preview", params=words, content=content, headers=CSV_TYPE)
    assert {error["field"] for error in answer.json()["rows"][0]["errors"]} == {"name"}
    words |= {"keep_empty": "true", "spreadsheet_safe": "true"}
    answer = await shop.ada.post("/v1/imports/preview", params=words, content=content, headers=CSV_TYPE)
    assert {error["field"] for error in answer.json()["rows"][0]["errors"]} == {"email"}
    answer = await shop.ada.post("/v1/imports/preview", params=words | {"key": "nmae"}, content=content)
    assert answer.json()["problems"] == ['Unknown key fields for people: "nmae"']


async def test_import_preview_validates_exact_decimals_and_returns_numbers(shop: Shop) -> None:
    content = b'{"email": "ada@x.org", "name": "Ada", "age": 36.0}\n{"email": 0.10, "name": 2.50, "age": 36.5}\n'
    told = {"resource": "people", "format": "ndjson"}
    answer = await shop.ada.post("/v1/imports/preview", params=told, content=content)
    first, second = answer.json()["rows"]
    assert first["input"] == {"email": "ada@x.org", "name": "Ada", "age": 36.0}
    assert second["input"] == {"email": 0.1, "name": 2.5, "age": 36.5}
    assert {error["field"]: error["value"] for error in second["errors"]} == {"email": "0.10", "age": "36.5"}


@pytest.mark.needs_feature("exports")
async def test_import_of_spreadsheet_safe_export_restores_values_by_default(shop: Shop) -> None:
    await shop.imported(b"email,name,age\nada@x.org,=Ada,36\nbob@x.org,'Bob,\n")
    asked = {"resource": "people", "format": "csv", "spreadsheet_safe": True, "fields": ["email", "name"]}
    answer = await shop.ada.post("/v1/exports", json=asked)
    assert answer.status_code == 202, answer.text
    await shop.work()
    file_id = (await shop.ada.get(f"/v1/exports/{answer.json()['job_id']}")).json()["file_id"]
    again = {"resource": "people", "mode": "upsert", "source": {"file_id": file_id}}
    for more, effects in (({}, (0, 2)), ({"spreadsheet_safe": False}, (1, 1))):
        headers = {"Idempotency-Key": f"safe-{len(more)}"}
        first = await shop.ada.post("/v1/imports", json=again | more, headers=headers)
        assert first.status_code == 202, first.text
        done = await shop.worked(first.json()["job_id"])
        assert (done["effects"]["updated"], done["effects"]["unchanged"]) == effects
        assert (await shop.ada.post("/v1/imports", json=again | more, headers=headers)).status_code == 200


async def test_import_preview_reports_unknown_and_missing_columns(shop: Shop) -> None:
    content = b"E-MAIL,shoe,age\nada@x.org,9,1\n"
    answer = await shop.ada.post("/v1/imports/preview", params={"resource": "people"}, content=content)
    seen = answer.json()
    assert (seen["unknown"], seen["missing"], len(seen["problems"])) == (["shoe"], ["name"], 2)
    assert seen["mapping"] == {"E-MAIL": "email", "age": "age"}
    assert seen["rows"][0]["errors"] == []


async def test_startup_reports_all_invalid_resource_declarations(make_api: Callable[..., Any], tmp_path: Path) -> None:
    declared = tmp_path / "wrong.toml"
    declared.write_text('[resources.a]\ntable = "shop.none"\n[resources.b]\ntable = "tidemill.job"\n')
    api: Api = await make_api(config=declared)
    with pytest.raises(InvalidSettings) as stopped:
        await check_declared_resources_match_tables(api.app.state.runtime)
    assert "shop.none" in str(stopped.value)
    assert "resources.b.table: Cannot import into schema tidemill" in str(stopped.value)
    declared.write_text("[resources.a\n")
    with pytest.raises(InvalidSettings, match="not valid TOML"):
        await make_api(config=declared)


@pytest.mark.parametrize("path", ["/v1/imports", "/v1/imports/preview"])
async def test_import_with_sheet_number_of_many_digits_is_rejected(shop: Shop, path: str) -> None:
    """Python converts at most 4,300 digits to a number. The request is rejected because a CSV file has no sheets."""
    answer = await shop.ada.post(path, data={"resource": "people", "sheet": "9" * 5_000}, files={"file": GOOD})
    assert answer.status_code == 422, answer.text
    assert "sheet: not an option for csv" in answer.text
