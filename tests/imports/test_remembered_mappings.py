"""Remembered mappings: saved by imports, proposed for files with the same or similar columns, shared and forgotten."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from imports.scenes import Scene, small_batches
from support import rows
from support.import_requests import CSV_TYPE, Shop, open_shop
from tidemill import Mill
from tidemill.core.principal import Role
from tidemill.imports import remembered_mappings
from tidemill.imports.import_plan import ImportRequest
from tidemill.imports.remembered_mappings import (
    RememberedMapping,
    complete_request,
    delete_excess_mappings,
    fingerprint_columns,
)
from tidemill.store.database import Database
from tidemill.tables.resource import Field, Resource, TableName

if TYPE_CHECKING:
    from support.command import Tidemill

OCTOBER = b"Mail address,Full name,Years,Remarks\nada@x.org,Ada,forty,x\nbob@x.org,Bob,41,y\n"
NOVEMBER = b"Mail address,Name in full,Years,Remarks,Shoe size\neve@x.org,Eve,forty,x,38\n"
MAPPING = {"Mail address": "email", "Full name": "name", "Years": "age", "Remarks": ""}
FORTY = {"age": {"forty": "40"}}
WORDS = {"mapping": json.dumps(MAPPING), "translations": json.dumps(FORTY)}
PEOPLE = Resource(
    name="people",
    table=TableName("public", "people"),
    fields=tuple(Field(name=name, column=name, type="text") for name in ("email", "name", "age")),
)
SOURCE = RememberedMapping(
    id=1,
    owner_id=0,
    owner="local",
    resource="people",
    columns=list(MAPPING),
    options={"mapping": MAPPING, "translations": FORTY},
    shared=False,
    uses=1,
    job_key="J1",
    used_at=datetime(2026, 10, 3, tzinfo=UTC),
)


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    return await open_shop(make_api, toy, tmp_path)


async def preview(shop: Shop, content: bytes, who: httpx2.AsyncClient | None = None, **words: Any) -> dict[str, Any]:
    params = {"resource": "people"} | words
    answer = await (who or shop.ada).post("/v1/imports/preview", params=params, content=content, headers=CSV_TYPE)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def list_mappings(who: httpx2.AsyncClient, **words: Any) -> list[dict[str, Any]]:
    answer = await who.get("/v1/import-mappings", params=words)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["mappings"])


async def test_preview_of_same_columns_proposes_mapping_and_translations_of_last_import(shop: Shop) -> None:
    done = await shop.imported(OCTOBER, **WORDS, formats='{"age": "decimal-comma"}')
    seen = await preview(shop, b"YEARS,remarks,mail-address,full_name\nforty,x,eve@x.org,Eve\n")
    assert (seen["problems"], seen["rejected_values"]) == ([], {})
    assert seen["mapping"] == {"mail-address": "email", "full_name": "name", "YEARS": "age"}
    remembered = seen["remembered"]
    assert (remembered["exact"], remembered["job_key"], remembered["uses"]) == (True, done["key"], 1)
    assert (remembered["request"]["translations"], remembered["request"]["formats"]) == (
        FORTY,
        {"age": "decimal-comma"},
    )
    assert remembered["request"]["mapping"]["remarks"] == ""
    without = await preview(shop, OCTOBER, memory="false")
    assert (without["remembered"], without["unknown"]) == (None, list(MAPPING))
    assert (await shop.post(OCTOBER)).status_code == 422, "an import uses only the options of its request"


async def test_preview_of_similar_columns_reports_new_missing_and_probably_renamed_columns(shop: Shop) -> None:
    await shop.imported(OCTOBER, **WORDS)
    seen = await preview(shop, NOVEMBER)
    remembered = seen["remembered"]
    assert seen["mapping"] == {"Mail address": "email", "Years": "age"}
    assert seen["unknown"] == ["Name in full", "Shoe size"], "a rename is proposed, and never applied"
    assert (remembered["exact"], remembered["new"]) == (False, ["Name in full", "Shoe size"])
    assert remembered["missing"] == ["Full name"]
    rename = {"column": "Name in full", "before": "Full name", "field": "name", "reason": "same position"}
    assert remembered["renamed"] == [rename]
    chosen = json.dumps({"Name in full": "name", "Shoe size": ""})
    seen = await preview(shop, NOVEMBER, mapping=chosen)
    assert (seen["problems"], seen["remembered"]["renamed"]) == ([], [])
    done = await shop.imported(NOVEMBER, **{name: json.dumps(v) for name, v in seen["remembered"]["request"].items()})
    assert done["status"] == "completed"
    assert (await shop.people())[-1] == ("eve@x.org", "Eve", 40)
    assert (await preview(shop, NOVEMBER))["remembered"]["exact"]


async def test_preview_of_unrelated_columns_proposes_nothing(shop: Shop) -> None:
    await shop.imported(OCTOBER, **WORDS)
    assert (await preview(shop, b"email,name,Years\na@x.org,A,1\n"))["remembered"] is None


async def test_remembered_rules_do_not_set_fields_that_the_request_maps() -> None:
    rules = {"constants": {"name": "x", "age": "1"}, "computed": {"email": "lower(email)", "age": "1 + 1"}}
    source = replace(SOURCE, options={"mapping": {"Full name": ""}, **rules})
    request = ImportRequest(mapping={"Full name": "name", "Mail address": "email", "Years": "age"})
    found = complete_request(request, source, [*MAPPING], PEOPLE)
    assert (found.constants, found.computed) == ({}, {"email": "lower(email)"}), "only email is read from its column"


async def test_constants_of_a_shared_mapping_are_listed_for_its_owner_and_admins_only(shop: Shop) -> None:
    await shop.imported(b"email,name\na@x.org,A\n", constants='{"age": 41}')
    (mine,) = await list_mappings(shop.ada)
    assert mine["options"]["constants"] == {"age": "41"}
    answer = await shop.ada.patch(f"/v1/import-mappings/{mine['id']}", json={"shared": True})
    assert answer.json()["options"]["constants"] == {"age": "41"}
    (seen,) = await list_mappings(await shop.api.user("eve"))
    assert (seen["id"], "constants" in seen["options"]) == (mine["id"], False)
    (seen,) = await list_mappings(await shop.api.user("root", Role.ADMIN))
    assert seen["options"]["constants"] == {"age": "41"}


async def test_options_of_request_take_precedence_over_remembered_ones() -> None:
    request = ImportRequest(mapping={"Full name": "email"}, translations={"age": {"forty": "4"}}, mode="upsert")
    found = complete_request(request, SOURCE, [*MAPPING], PEOPLE)
    assert found.mapping == {"Full name": "email", "Years": "age", "Remarks": ""}, "no field has two columns"
    assert (found.translations, found.mode) == ({"age": {"forty": "4"}}, "upsert")
    without_age = replace(PEOPLE, fields=PEOPLE.fields[:2])
    found = complete_request(ImportRequest(), SOURCE, [*MAPPING], without_age)
    assert (found.mapping, found.translations) == (
        {"Mail address": "email", "Full name": "name", "Remarks": ""},
        {},
    )


async def test_only_imports_with_a_good_row_are_remembered(shop: Shop) -> None:
    await shop.imported(OCTOBER, **WORDS, validate_only=True)
    bad = OCTOBER.replace(b"@x.org", b"")
    await shop.imported(bad, **WORDS)
    assert await list_mappings(shop.ada) == []
    dry_run = await shop.imported(OCTOBER, **WORDS, validate_only=True)
    promoted = await shop.ada.post(f"/v1/imports/{dry_run['job_id']}/promote")
    await shop.worked(promoted.json()["job_id"])
    (found,) = await list_mappings(shop.ada)
    assert (found["job_key"], found["uses"], found["columns"]) == (promoted.json()["key"], 1, list(MAPPING))
    assert found["options"] == {"mapping": MAPPING, "translations": FORTY}


async def test_mapping_is_counted_once_per_import(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 2)
    await scene.table("CREATE TABLE people (email text PRIMARY KEY)")
    for part in "ab":
        lines = [f"{part}{n}" for n in range(9)]
        await scene.run("\n".join(["Mail", *lines]), "people", mapping={"Mail": "email"})
    assert await scene.rows("SELECT uses, owner_id FROM tidemill.import_mapping") == [(2, 0)]


async def test_shared_mapping_is_proposed_to_others_and_changed_only_by_owner_or_admin(shop: Shop) -> None:
    await shop.imported(OCTOBER, **WORDS)
    bob, root = await shop.api.user("bob"), await shop.api.user("root", Role.ADMIN)
    (mine,) = await list_mappings(shop.ada)
    path = f"/v1/import-mappings/{mine['id']}"
    assert await list_mappings(bob) == []
    assert (await preview(shop, OCTOBER, bob))["remembered"] is None
    assert (await bob.patch(path, json={"shared": True})).status_code == 404

    assert (await shop.ada.patch(path, json={"shared": True})).json()["shared"] is True
    remembered = (await preview(shop, OCTOBER, bob))["remembered"]
    assert (remembered["owner"], remembered["shared"], remembered["exact"]) == ("ada", True, True)
    assert [one["id"] for one in await list_mappings(bob, resource="people")] == [mine["id"]]
    assert await list_mappings(bob, resource="staff") == []
    assert (await bob.patch(path, json={"shared": False})).status_code == 403
    assert (await bob.delete(path)).status_code == 403

    assert (await root.patch(path, json={"shared": False})).status_code == 200
    assert (await preview(shop, OCTOBER, bob))["remembered"] is None
    assert (await root.delete(path)).status_code == 204
    assert (await preview(shop, OCTOBER))["remembered"] is None
    assert (await shop.ada.delete(path)).status_code == 404


async def test_own_mapping_is_preferred_to_shared_one(shop: Shop) -> None:
    await shop.imported(OCTOBER, **WORDS)
    (mine,) = await list_mappings(shop.ada)
    await shop.ada.patch(f"/v1/import-mappings/{mine['id']}", json={"shared": True})
    bob = await shop.api.user("bob")
    other = json.dumps(MAPPING | {"Years": ""})
    answer = await shop.post(OCTOBER.replace(b"ada", b"a2").replace(b"bob", b"b2"), bob, mapping=other)
    assert answer.status_code == 202
    await shop.work()
    seen = await preview(shop, OCTOBER, bob)
    assert (seen["remembered"]["owner"], "Years" in seen["mapping"]) == ("bob", False)


async def test_mappings_end_with_their_owner_and_beyond_the_limit(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    db = shop.api.db
    for extra in ("one", "two", "three"):
        content = f"email,name,{extra}\n{extra}@x.org,A,\n".encode()
        await shop.imported(content, mapping=json.dumps({extra: ""}))
    page = (await shop.ada.get("/v1/import-mappings", params={"page_size": 2})).json()
    rest = await shop.ada.get("/v1/import-mappings", params={"page_size": 2, "after": page["next_page"]})
    shown = [one["columns"][2] for one in page["mappings"] + rest.json()["mappings"]]
    assert shown == ["three", "two", "one"]
    monkeypatch.setattr(remembered_mappings, "REMEMBERED_PER_OWNER_MAX", 2)
    assert await db.run(delete_excess_mappings) == 1
    assert [one["columns"][2] for one in await list_mappings(shop.ada)] == ["three", "two"]
    await rows(db, "DELETE FROM tidemill.app_user WHERE name = 'ada'")
    assert await rows(db, "SELECT count(*) FROM tidemill.import_mapping") == [(0,)]


def test_fingerprint_ignores_order_case_and_punctuation() -> None:
    assert fingerprint_columns(["E-Mail", "Full name"]) == fingerprint_columns(["full_name", "email"])
    assert fingerprint_columns(["a", "bc"]) != fingerprint_columns(["ab", "c"])


async def test_import_command_uses_memory_and_reports_it(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, "CREATE TABLE people (email text PRIMARY KEY, name text NOT NULL, age integer)")
    options = [word for column, field in MAPPING.items() for word in ("--map", f"{column}={field}")]
    october = tidemill.file("october.csv", OCTOBER.decode() + "Total,2,,\n")
    first = tidemill(
        "import", october, "--into", "people", *options, "--translate", "age:forty=40", "--footer-lines", "1"
    )
    assert "as in import" not in first.err
    key = first.out.split()[0]

    same = tidemill.file("same.csv", OCTOBER.decode().replace("@", "2@") + "Total,2,,\n")
    again = tidemill("import", same, "--into", "people")
    assert f"Columns as in import {key} of " in again.err
    assert await rows(db, "SELECT count(*), sum(age) FROM people") == [(4, 162)]
    assert "is not a field of" in tidemill.refuses("import", same, "--into", "people", "--no-memory")

    november = tidemill.file("november.csv", NOVEMBER.decode())
    said = tidemill("import", november, "--into", "people", "--preview")
    for line in (
        "Known columns as in import",
        'New since then: "Shoe size"',
        'Missing since then: "Full name"',
        """"Name in full" may be the new name of "Full name" (same position): --map 'Name in full=name'""",
    ):
        assert line in said.err
    tidemill("import", november, "--into", "people", "--map", "Name in full=name", "--map", "Shoe size=")
    assert await rows(db, "SELECT name, age FROM people WHERE email = 'eve@x.org'") == [("Eve", 40)]


async def test_import_command_is_silent_when_memory_would_change_nothing(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, "CREATE TABLE people (email text PRIMARY KEY, name text, age int)")
    first = tidemill.file("a.csv", "Mail,name,age\na,A,1\n")
    tidemill("import", first, "--into", "people", "--map", "Mail=email")
    plain = tidemill.file("b.csv", "email,name,age\nb,B,2\n")
    assert "as in import" not in tidemill("import", plain, "--into", "people").err
    renamed = tidemill.file("c.csv", "E-Post,name,age\nc,C,3\n")
    said = tidemill("import", renamed, "--into", "people", "--preview")
    assert '"E-Post" may be the new name of "email"' in said.err


async def test_mappings_command_lists_shows_shares_and_forgets(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, "CREATE TABLE people (email text PRIMARY KEY)")
    tidemill("import", tidemill.file("a.csv", "Mail\na\n"), "--into", "people", "--map", "Mail=email")
    (listed,) = map(json.loads, tidemill("mappings", "list", "--json").out.splitlines())
    assert (listed["owner"], listed["options"]) == ("local", {"mapping": {"Mail": "email"}})
    mapping = str(listed["id"])
    assert "public.people" in tidemill("mappings", "list").out
    assert json.loads(tidemill("mappings", "show", mapping).out)["columns"] == ["Mail"]
    assert f"Shared mapping {mapping}" in tidemill("mappings", "share", mapping).out
    assert json.loads(tidemill("mappings", "show", mapping).out)["shared"] is True
    tidemill("mappings", "share", mapping, "--stop")
    assert json.loads(tidemill("mappings", "show", mapping).out)["shared"] is False
    assert f"Forgot mapping {mapping}" in tidemill("mappings", "forget", mapping).out
    assert tidemill("mappings", "list", "--into", "people", "--json").out == ""
    assert f'Unknown mapping "{mapping}"' in tidemill.refuses("mappings", "show", mapping)
