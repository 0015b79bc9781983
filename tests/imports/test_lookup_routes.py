"""Lookups over HTTP, in declarations, remembered mappings and commands: options, permissions and previews."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support import job_of, rows
from support.import_requests import CSV_TYPE, Shop
from tidemill import Mill
from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.core.principal import Role
from tidemill.imports import lookups
from tidemill.store.database import Database
from tidemill.tables.config import parse_resource_declarations
from tidemill.tables.resource import Resource
from tidemill.tables.resource_registry import ResourceRegistry
from tidemill.testing import drain

if TYPE_CHECKING:
    from support.command import Tidemill

TABLES = """
CREATE TABLE teams (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, secret text UNIQUE);
INSERT INTO teams (name, secret) VALUES ('Red', 'r'), ('Blue', 'b');
CREATE TABLE vaults (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
INSERT INTO vaults (name) VALUES ('Gold');
CREATE TABLE people (nick text PRIMARY KEY, team_id int REFERENCES teams, vault_id int REFERENCES vaults);
"""
DECLARED = """
[resources.people]
table = "people"
read = ["user", "admin"]
write = ["user", "admin"]
[resources.teams]
table = "teams"
columns = ["name"]
read = ["user", "admin"]
write = {write}
[resources.fans]
table = "people"
read = ["user", "admin"]
write = ["user", "admin"]
[resources.fans.fields.vault_id]
lookup = "name"
create_missing = {create}
"""
BY_NAME: dict[str, Any] = {"lookups": json.dumps({"team_id": "name"})}
FILE = b"nick,team\nann,Red\nbob,Pink\n"


async def open_teams(
    make_api: Callable[..., Any], toy: Mill, folder: Path, *, write: str = "[]", create: str = "false"
) -> Shop:
    config = folder / "teams.toml"
    config.write_text(DECLARED.format(write=write, create=create))
    api = await make_api(config=config)
    for statement in filter(str.strip, TABLES.split(";")):
        await rows(api.db, statement)
    return Shop(api, toy, await api.user("ada"))


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    return await open_teams(make_api, toy, tmp_path)


async def preview(shop: Shop, content: bytes = FILE, /, **words: Any) -> dict[str, Any]:
    params = {"resource": "people"} | words
    answer = await shop.ada.post("/v1/imports/preview", params=params, content=content, headers=CSV_TYPE)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def people(shop: Shop) -> list[tuple[Any, ...]]:
    query = "SELECT nick, t.name, v.name FROM people p LEFT JOIN teams t ON t.id = team_id"
    return await rows(shop.api.db, f"{query} LEFT JOIN vaults v ON v.id = vault_id ORDER BY nick")


async def test_import_by_name_reports_lookups_and_missing_reference(shop: Shop) -> None:
    done = await shop.imported(FILE, **BY_NAME)
    assert (done["lookups"], done["create_missing"]) == ({"team_id": ["name"]}, [])
    assert done["rows_by_error"] == {"team_id.unknown_reference": 1}
    assert await people(shop) == [("ann", "Red", None)]
    for words in ({"lookups": '{"team": ["name"]}'}, {"lookups": '{"team_id": "name"}', "key": "nick"}):
        answer = await shop.ada.post("/v1/imports", data={"resource": "people", **words}, files={"file": FILE})
        assert answer.status_code == 202, answer.text


async def test_error_file_fix_and_repair_use_the_lookup(shop: Shop) -> None:
    done = await shop.imported(b"nick,team\nann,Rad\nbob,Rod\ncat,Rid\n", **BY_NAME)
    job = done["job_id"]
    errors = (await shop.ada.get(f"/v1/imports/{job}/errors.csv")).text
    assert errors.splitlines()[1] == "ann,Rad,1,team: no row in public.teams has this name,team_id.unknown_reference"
    fixed = b"_row,team\n1,Red\n"
    answer = await shop.ada.post(f"/v1/imports/{job}/fixes", content=fixed, headers=CSV_TYPE)
    assert answer.status_code in (200, 202), answer.text
    rule = {"type": "translate", "values": {"Rod": "Blue", "Rid": "Grey"}}
    repair = {"cause": "team_id.unknown_reference", "rule": rule}
    seen = (await shop.ada.post(f"/v1/imports/{job}/repairs/preview", json=repair)).json()
    assert (seen["rows"], seen["column"], seen["changed"], seen["valid"]) == (2, "team", 2, 1)
    answer = await shop.ada.post(f"/v1/imports/{job}/repairs", json=repair)
    assert answer.status_code in (200, 202), answer.text
    done = await shop.worked(job)
    assert await people(shop) == [("ann", "Red", None), ("bob", "Blue", None)]
    assert done["rows_by_error"] == {"team_id.unknown_reference": 1}


@pytest.mark.parametrize(
    "wanted",
    [{"team_id": "secret"}, {"team_id": "nonsense"}, {"vault_id": "name"}, {"vault_id": "nonsense"}],
)
async def test_user_may_search_only_columns_of_allowed_resources(shop: Shop, wanted: dict[str, str]) -> None:
    words = {"lookups": json.dumps(wanted)}
    for path in ("/v1/imports", "/v1/imports/preview"):
        params = {"resource": "people", **words}
        answer = await shop.ada.post(path, params=params, content=FILE, headers=CSV_TYPE)
        assert answer.status_code == 403, answer.text
        assert "you may not search" in answer.text
    admin = await shop.api.user("root", role=Role.ADMIN)
    answer = await admin.post(
        "/v1/imports/preview", params={"resource": "people", **words}, content=FILE, headers=CSV_TYPE
    )
    assert answer.status_code == (422 if "nonsense" in wanted.values() else 200), answer.text


async def test_declared_lookup_is_allowed_without_access_to_its_table(shop: Shop) -> None:
    done = await shop.imported(b"nick,Vault\nann,Gold\nbob,Iron\n", resource="fans")
    assert (done["lookups"], done["rows_by_error"]) == ({"vault_id": ["name"]}, {"vault_id.unknown_reference": 1})
    assert await people(shop) == [("ann", None, "Gold")]
    done = await shop.imported(b"nick,vault_id\ncat,1\n", resource="fans", lookups='{"vault_id": ""}')
    assert (done["lookups"], await people(shop)) == ({}, [("ann", None, "Gold"), ("cat", None, "Gold")])


async def test_user_creates_rows_only_with_write_access_to_their_table(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path
) -> None:
    shop = await open_teams(make_api, toy, tmp_path)
    answer = await shop.post(FILE, **BY_NAME, create_missing="team_id")
    assert answer.status_code == 403, answer.text
    assert "you may not create missing rows" in answer.text
    assert (await preview(shop))["lookups"][0]["creatable"] == []


async def test_user_with_write_access_creates_rows_in_import_and_promoted_dry_run(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path
) -> None:
    shop = await open_teams(make_api, toy, tmp_path, write='["user", "admin"]')
    words: dict[str, Any] = BY_NAME | {"create_missing": "team_id"}
    tested = await shop.imported(FILE + b"cat,Pink\n", **words, validate_only=True)
    assert (tested["created_references"], tested["effects"]["inserted"]) == ({"public.teams": 1}, 3)
    assert await rows(shop.api.db, "SELECT count(*) FROM teams") == [(2,)]
    answer = await shop.ada.post(f"/v1/imports/{tested['job_id']}/promote")
    done = await shop.worked(answer.json()["job_id"])
    assert (done["status"], done["created_references"]) == ("completed", {"public.teams": 1})
    assert [name for _, name, _ in await people(shop)] == ["Red", "Pink", "Pink"]


async def test_revoked_access_refuses_promotion_and_retry_of_creating_import(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = await open_teams(make_api, toy, tmp_path, write='["user", "admin"]')
    words: dict[str, Any] = BY_NAME | {"create_missing": "team_id"}
    tested = await shop.imported(FILE + b",Red\n", **words, validate_only=True)
    monkeypatch.setattr(lookups, "is_granted", lambda *_: False)
    answer = await shop.ada.post(f"/v1/imports/{tested['job_id']}/promote")
    assert answer.status_code == 403, answer.text
    for path in (f"/v1/imports/{tested['job_id']}/reprocess", f"/v1/jobs/{tested['job_id']}/reprocess"):
        answer = await shop.ada.post(path, json={"statuses": ["failed"]})
        assert answer.status_code == 403, answer.text


async def test_declared_creation_requires_write_access_of_the_user(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path
) -> None:
    shop = await open_teams(make_api, toy, tmp_path, create="true")
    answer = await shop.post(b"nick,vault\nann,Iron\n", resource="fans")
    assert answer.status_code == 403, answer.text
    assert await rows(shop.api.db, "SELECT count(*) FROM vaults") == [(1,)]


async def test_preview_proposes_lookup_and_counts_found_values(shop: Shop) -> None:
    seen = await preview(shop)
    assert seen["lookup_proposals"] == [{"column": "team", "field": "team_id", "table": "public.teams", "by": "name"}]
    (choices,) = seen["lookups"]  # the user sees no resource of the table vaults
    assert choices["columns"] == ["name"]
    assert (choices["by"], choices["column"], choices["values"]) == ([], None, None)

    seen = await preview(shop, FILE + b"cat,Pink\ndan,Red\n", **BY_NAME)
    assert (seen["problems"], seen["lookup_proposals"], seen["mapping"]["team"]) == ([], [], "team_id")
    assert seen["lookups"][0] | {"columns": 0} == {
        "field": "team_id",
        "table": "public.teams",
        "column": "team",
        "by": ["name"],
        "create": False,
        "columns": 0,
        "unique": [["name"]],
        "creatable": [],
        "proposal": "name",
        "values": {"found": 1, "missing": 1, "ambiguous": 0},
    }
    assert [one["type"] for one in seen["fields"] if one["name"] == "team_id"] == ["text"]
    reason = "no row in public.teams has this name"
    assert seen["rejected_values"] == {"team_id": [{"value": "Pink", "rows": 2, "reason": reason}]}
    assert [len(row["errors"]) for row in seen["rows"]] == [0, 1, 1, 0]
    replaced = await preview(shop, **BY_NAME, translations='{"team_id": {"Pink": "Blue"}}')
    assert replaced["lookups"][0]["values"] == {"found": 2, "missing": 0, "ambiguous": 0}


async def test_preview_omits_lookup_that_takes_too_long(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "PREVIEW_LOOKUP_TIMEOUT_S", 0.05)
    body = "BEGIN PERFORM pg_sleep(0.3); RETURN true; END"
    await rows(shop.api.db, f"CREATE FUNCTION slow(text) RETURNS bool LANGUAGE plpgsql AS $$ {body} $$")
    await rows(shop.api.db, "CREATE DOMAIN slow_name text CHECK (slow(VALUE))")
    await rows(shop.api.db, "ALTER TABLE teams ADD alias slow_name")
    admin = await shop.api.user("root", role=Role.ADMIN)
    params = {"resource": "people", "lookups": '{"team_id": "alias"}'}
    seen = (await admin.post("/v1/imports/preview", params=params, content=FILE, headers=CSV_TYPE)).json()
    assert (seen["problems"], seen["lookups"][0]["by"], seen["lookups"][0]["values"]) == ([], ["alias"], None)
    assert [row["errors"] for row in seen["rows"]] == [[], []]


async def test_lookup_is_remembered_for_the_next_file(shop: Shop) -> None:
    words = {"mapping": '{"Crew": "team_id"}', "lookups": '{"team_id": "name"}'}
    await shop.imported(b"nick,Crew\nann,Red\n", **words)
    seen = await preview(shop, b"nick,Crew\nbob,Blue\n")
    assert (seen["problems"], seen["lookups"][0]["by"]) == ([], ["name"])
    assert seen["remembered"]["request"]["lookups"] == {"team_id": ["name"]}
    assert seen["lookups"][0]["values"] == {"found": 1, "missing": 0, "ambiguous": 0}


async def test_shared_mapping_with_forbidden_lookup_is_proposed_without_it(shop: Shop) -> None:
    admin = await shop.api.user("root", role=Role.ADMIN)
    words = {"mapping": '{"Crew": "team_id"}', "lookups": '{"team_id": "secret"}', "resource": "people"}
    answer = await admin.post("/v1/imports", params=words, content=b"nick,Crew\nann,r\n", headers=CSV_TYPE)
    await shop.work()
    (mapping,) = (await admin.get("/v1/import-mappings")).json()["mappings"]
    await admin.patch(f"/v1/import-mappings/{mapping['id']}", json={"shared": True})
    seen = await preview(shop, b"nick,Crew\nbob,b\n")
    assert answer.status_code == 202
    assert (seen["remembered"]["shared"], seen["lookups"][0]["by"]) == (True, [])
    assert "lookups" not in seen["remembered"]["request"]


async def test_import_command_proposes_previews_and_applies_lookup(tidemill: "Tidemill", db: Database) -> None:
    for statement in filter(str.strip, TABLES.split(";")):
        await rows(db, statement)
    await rows(db, "ALTER TABLE teams DROP secret")
    file = tidemill.file("people.csv", FILE.decode())
    said = tidemill("import", file, "--into", "people", code=2).err
    assert 'Column "team" may name the rows of public.teams' in said
    said = tidemill("import", file, "--into", "people", "--preview").out
    assert "team may name the rows of public.teams for team_id: --lookup team_id=name" in said
    option = ("--lookup", "team_id=name")
    said = tidemill("import", file, "--into", "people", *option, "--preview").out
    assert "team: finds team_id in public.teams by name: 1 found, 1 missing in these rows" in said
    creating = (*option, "--create-missing", "team_id")
    said = tidemill("import", file, "--into", "people", *creating, "--validate-only").out
    assert "2 would be inserted · 1 would be created in public.teams" in said
    said = tidemill("import", file, "--into", "people", *creating).out
    assert "2 inserted · 1 created in public.teams" in said
    again = tidemill("import", tidemill.file("b.csv", "nick,team\ncy,Blue\n"), "--into", "people")
    assert "Columns as in import" in again.err
    found = await rows(db, "SELECT nick, name FROM people JOIN teams ON teams.id = team_id ORDER BY nick")
    assert found == [("ann", "Red"), ("bob", "Pink"), ("cy", "Blue")]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--lookup", "team_id"], 'Invalid value "team_id" for --lookup. Use FIELD=COLUMN.'),
        (["--lookup", "team_id=name", "--lookup", "team_id=secret"], '"team_id" has two lookups'),
        (["--lookup", "team_id=nome"], 'it has no column "nome"; did you mean "name"?'),
        (["--lookup", "nick=name"], "public.people has no foreign key of this column alone"),
        (["--create-missing", "team_id"], 'Cannot create missing rows for "team_id": set a lookup'),
    ],
)
async def test_import_command_reports_invalid_lookup(
    tidemill: "Tidemill", db: Database, options: list[str], reason: str
) -> None:
    for statement in filter(str.strip, TABLES.split(";")):
        await rows(db, statement)
    said = tidemill("import", tidemill.file("people.csv", FILE.decode()), "--into", "people", *options, code=2).err
    assert reason in " ".join(said.split())


async def test_mill_submits_import_with_lookup(db: Database, settings: Settings) -> None:
    for statement in filter(str.strip, TABLES.split(";")):
        await rows(db, statement)
    mill = Mill(settings)
    job_id = await mill.submit_import_async(
        BytesIO(FILE), "people", name="a.csv", lookups={"team_id": "name"}, create_missing=["team_id"]
    )
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).status == "completed"
    assert await rows(db, "SELECT name FROM people JOIN teams ON id = team_id ORDER BY nick") == [("Red",), ("Pink",)]


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ('[resources.people.fields.nick]\nlookup = "name"', "a lookup requires a foreign key of this column alone"),
        ("[resources.people.fields.team_id]\ncreate_missing = true", "create_missing requires a lookup"),
    ],
)
async def test_declared_lookup_that_cannot_work_is_reported(db: Database, rules: str, reason: str) -> None:
    for statement in filter(str.strip, TABLES.split(";")):
        await rows(db, statement)
    declared = parse_resource_declarations(tomllib.loads(f'[resources.people]\ntable = "people"\n{rules}'))
    with pytest.raises(InvalidSettings, match=reason):
        await ResourceRegistry(declared).get_resource(db, "people")


TENANT_TABLES = """
CREATE TABLE teams (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant_id int, name text NOT NULL, UNIQUE (tenant_id, name));
INSERT INTO teams (tenant_id, name) VALUES (1, 'Red'), (2, 'Blue');
CREATE TABLE players (
    nick text PRIMARY KEY, tenant_id int, email text, team_id int REFERENCES teams, boss text REFERENCES players,
    UNIQUE (tenant_id, email));
INSERT INTO players VALUES ('eve', 2, 'eve@x'), ('amy', 1, 'amy@x');
CREATE TABLE clubs (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant_id int, name text NOT NULL, UNIQUE (tenant_id, name));
INSERT INTO clubs (tenant_id, name) VALUES (2, 'Gold');
CREATE TABLE fans (nick text PRIMARY KEY, club_id int REFERENCES clubs);
"""
TENANTS_DECLARED = """
[resources.players]
table = "players"
write = ["user"]
constants = {{ tenant_id = 1 }}
[resources.members]
table = "players"
write = ["user"]
constants = {{ tenant = 1 }}
[resources.members.fields.tenant]
column = "tenant_id"
[resources.staff]
table = "players"
write = ["user"]
constants = {{ tenant_id = 1 }}
[resources.staff.fields.team_id]
lookup = ["name", "tenant_id"]
[resources.teams]
table = "teams"
columns = ["tenant_id", "name"]
read = ["user"]
[resources.clubs]
table = "clubs"
write = ["user"]
{rule}
[resources.fans]
table = "fans"
write = ["user"]
"""


async def open_tenants(make_api: Callable[..., Any], toy: Mill, folder: Path, rule: str = "") -> Shop:
    config = folder / "tenants.toml"
    config.write_text(TENANTS_DECLARED.format(rule=rule))
    api = await make_api(config=config)
    for statement in filter(str.strip, TENANT_TABLES.split(";")):
        await rows(api.db, statement)
    return Shop(api, toy, await api.user("ada"))


@pytest.mark.parametrize(
    ("resource", "lookup", "content", "reason"),
    [
        ("players", {"team_id": "tenant_id,name"}, b"nick,team_id,team_id.name\nann,2,Blue\n", "name,tenant_id"),
        ("players", {"boss": "tenant_id,email"}, b"nick,boss,email\nann,2,eve@x\n", "email,tenant_id"),
        ("players", {"team_id": "tenant_id"}, b"nick,team_id\nann,2\n", "Search by another column first"),
        ("members", {"team_id": "tenant_id,name"}, b"nick,team_id,team_id.name\nann,2,Blue\n", "name,tenant_id"),
        ("members", {"team_id": "name"}, b"nick,team\nann,Blue\n", "search by these columns, too: name,tenant_id"),
        (
            "members",
            {"team_id": "name,tenant_id"},
            b"nick,team,team_id.tenant_id\nann,Blue,2\n",
            'Column "team_id.tenant_id" is not a field',
        ),
    ],
)
async def test_lookup_cannot_read_forced_tenant_from_file(
    make_api: Callable[..., Any],
    toy: Mill,
    tmp_path: Path,
    resource: str,
    lookup: dict[str, str],
    content: bytes,
    reason: str,
) -> None:
    shop = await open_tenants(make_api, toy, tmp_path)
    answer = await shop.post(content, resource=resource, lookups=json.dumps(lookup))
    assert answer.status_code == 422, answer.text
    assert reason in answer.json()["detail"] + " ".join(map(str, answer.json().get("errors", []))), answer.text


@pytest.mark.parametrize("resource", ["players", "members"])
async def test_lookup_finds_rows_of_forced_tenant_only(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path, resource: str
) -> None:
    shop = await open_tenants(make_api, toy, tmp_path)
    words = {"resource": resource, "lookups": json.dumps({"team_id": "name,tenant_id", "boss": "email,tenant_id"})}
    content = b"nick,team,boss\nann,Red,amy@x\nbob,Blue,\ncat,,eve@x\n"
    done = await shop.imported(content, **words)
    assert done["rows_by_error"] == {"team_id.unknown_reference": 1, "boss.unknown_reference": 1}
    found = await rows(shop.api.db, "SELECT tenant_id, team_id, boss FROM players WHERE nick NOT IN ('eve', 'amy')")
    assert found == [(1, 1, "amy")]


FORCED_TENANT = "constants = { tenant_id = 1 }"
OF_OWNER = 'constants = { tenant_id = { from = "owner_id" } }'


@pytest.mark.parametrize(
    ("rule", "create", "status"),
    [
        ("", True, 202),
        (FORCED_TENANT, True, 403),
        (FORCED_TENANT, False, 403),
        (OF_OWNER, True, 403),
        (OF_OWNER, False, 403),
        ("skip = [\"name = 'Iron'\"]", True, 403),
        ("skip = [\"name = 'Iron'\"]", False, 202),
        ('computed = { tenant_id = "1" }', True, 403),
        ('computed = { tenant_id = "1" }', False, 202),
    ],
)
async def test_lookup_cannot_evade_forced_rules_of_searched_table(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path, rule: str, create: bool, status: int
) -> None:
    shop = await open_tenants(make_api, toy, tmp_path, rule)
    words: dict[str, Any] = {"lookups": '{"club_id": "name,tenant_id"}'}
    words |= {"create_missing": "club_id"} if create else {}
    content = b"nick,club,club_id.tenant_id\nann,Iron,2\n"
    answer = await shop.post(content, resource="fans", **words)
    assert answer.status_code == status, answer.text
    await shop.work()
    created = 1 if create and status == 202 else 0
    assert await rows(shop.api.db, "SELECT count(*) FROM clubs WHERE name = 'Iron'") == [(created,)]
    seen = await preview(shop, b"nick\nann\n", resource="fans")
    assert [one["columns"] for one in seen["lookups"]] == ([] if "constants" in rule else [["tenant_id", "name"]])


@pytest.mark.parametrize(
    "words",
    [
        {"lookups": '{"team_id": ""}'},
        {"computed": '{"team_id": "nick"}'},
        {"computed": '{"team_id": "trim(team_id)"}'},
        {"constants": '{"team_id": "2"}'},
    ],
)
async def test_user_cannot_drop_declared_lookup_that_searches_by_forced_tenant(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path, words: dict[str, str]
) -> None:
    shop = await open_tenants(make_api, toy, tmp_path)
    is_column_closed = "constants" in words or '"nick"' in words.get("computed", "")
    content = b"nick\n2\n" if is_column_closed else b"nick,team_id\n2,2\n"
    for path in ("/v1/imports", "/v1/imports/preview"):
        params = {"resource": "staff"} | words
        answer = await shop.ada.post(path, params=params, content=content, headers=CSV_TYPE)
        assert answer.status_code == 403, answer.text
        assert 'Keep the lookup of field "team_id"' in answer.json()["detail"]
    done = await shop.imported(b"nick,team\nann,Red\nbob,Blue\n", resource="staff")
    assert done["rows_by_error"] == {"team_id.unknown_reference": 1}


@pytest.mark.parametrize(
    ("resource", "lookups", "content", "words", "problem"),
    [
        ("fans", {"club_id": "name,tenant_id"}, b"nick,club\nann,Gold\n", {}, "needs a column for tenant_id"),
        ("staff", {}, b"nick,team\nann,Red\n", {"skip": '["wrong = 1"]'}, '"wrong" is neither a field nor a column'),
        (
            "chats",
            {"author": "email,team_id", "team_id": "name,tenant_id"},
            b"n,author,team\n1,eve@x,Blue\n",
            {},
            "needs a column for tenant_id",
        ),
    ],
)
async def test_preview_of_lookup_without_all_its_columns_shows_problem(
    make_api: Callable[..., Any],
    toy: Mill,
    tmp_path: Path,
    resource: str,
    lookups: dict[str, str],
    content: bytes,
    words: dict[str, str],
    problem: str,
) -> None:
    shop = await open_tenants(make_api, toy, tmp_path)
    await rows(
        shop.api.db,
        "CREATE TABLE chats (n int PRIMARY KEY, author text REFERENCES players, team_id int REFERENCES teams)",
    )
    admin = await shop.api.user("root", role=Role.ADMIN)
    params = {"resource": resource, "lookups": json.dumps(lookups)} | words
    answer = await admin.post("/v1/imports/preview", params=params, content=content, headers=CSV_TYPE)
    assert answer.status_code == 200, answer.text
    assert problem in " ".join(answer.json()["problems"])
    assert {one["values"] for one in answer.json()["lookups"]} == {None}


async def test_removed_declaration_of_lookup_refuses_promotion_and_retry(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = await open_teams(make_api, toy, tmp_path)
    tested = await shop.imported(b"nick,vault\nann,Gold\nbob,Iron\n", resource="fans", validate_only=True)
    find = ResourceRegistry.get_resource

    async def find_without_lookups(self: ResourceRegistry, db: Database, name: str, **options: Any) -> Resource:
        found = await find(self, db, name, **options)
        return replace(found, fields=tuple(replace(one, lookup=()) for one in found.fields))

    monkeypatch.setattr(ResourceRegistry, "get_resource", find_without_lookups)
    answer = await shop.ada.post(f"/v1/imports/{tested['job_id']}/promote")
    assert answer.status_code == 403, answer.text
    for path in (f"/v1/imports/{tested['job_id']}/reprocess", f"/v1/jobs/{tested['job_id']}/reprocess"):
        answer = await shop.ada.post(path, json={"statuses": ["failed"]})
        assert answer.status_code == 403, answer.text


async def test_shared_mapping_that_computes_restricted_reference_is_proposed_without_it(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path
) -> None:
    shop = await open_tenants(make_api, toy, tmp_path)
    admin = await shop.api.user("root", role=Role.ADMIN)
    words = {"resource": "staff", "computed": '{"team_id": "1", "email": "lower(nick)"}'}
    answer = await admin.post("/v1/imports", params=words, content=b"nick\nAnn\n", headers=CSV_TYPE)
    assert answer.status_code == 202, answer.text
    await shop.work()
    (mapping,) = (await admin.get("/v1/import-mappings")).json()["mappings"]
    await admin.patch(f"/v1/import-mappings/{mapping['id']}", json={"shared": True})
    seen = await preview(shop, b"nick\nBob\n", resource="staff")
    assert seen["remembered"]["request"]["computed"] == {"email": "lower(nick)"}
