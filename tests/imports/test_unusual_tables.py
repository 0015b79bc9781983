"""Imports into unusual tables."""

import json

import pytest

from imports.scenes import Scene, look_at, with_fields
from tidemill.core.errors import InvalidInput

ODD = '''CREATE TABLE "Odd Table %%" (
    "Tenant" int, "no %%s" text, mood mood, tags text[], grid int[][], twice int GENERATED ALWAYS AS (size * 2) STORED,
    id bigint GENERATED ALWAYS AS IDENTITY, size int, "it's ""quoted""" jsonb, raw json, blob bytea, net inet,
    during tstzrange, code code, at time, place point, price numeric(6,2), "a{b}" text DEFAULT 'x',
    PRIMARY KEY ("Tenant", "no %%s"))'''
TYPES = (
    "CREATE TYPE mood AS ENUM ('so so', 'happy')",
    "CREATE DOMAIN code AS varchar(5) CHECK (VALUE ~ '^[A-Z]+$')",
)
ROW = {
    "Tenant": 1,
    "no %s": "a'b\\c\td\ne",
    "mood": "so so",
    "tags": ['x,"y"', "NULL", None, "\\"],
    "grid": [[1, 2], [3, None]],
    "size": 4,
    'it\'s "quoted"': {"a": [1, "ä"]},
    "raw": {"b": 1},
    "blob": "AAEC",
    "net": "10.0.0.0/8",
    "during": "[2026-01-01,2026-02-01)",
    "code": "ABC",
    "at": "13:45",
    "place": "(1,2)",
    "price": "12.345",
    "a{b}": None,
}


async def test_import_handles_every_column_type_and_quoted_identifiers(scene: Scene) -> None:
    await scene.table(*TYPES, ODD)
    bad = [
        {"Tenant": 2, "no %s": "b", "mood": "sad"},
        {"Tenant": 2, "no %s": "c", "tags": "[1", "net": "1.2.3.4.5"},
        {"Tenant": 2, "no %s": "d", "code": "abc", "grid": [[1], [2, 3]]},
        {"Tenant": 2, "no %s": "e", "code": "ABCDEF", "price": 99999},
    ]
    text = "".join(json.dumps(row) + "\n" for row in (ROW, *bad))
    plain = {"price": "plain"}
    first = await scene.run(text, '"Odd Table %"', name="r.ndjson", formats=plain)
    told = [[one["field"] for one in error.get("errors", [error])] for _, _, error in await scene.outcomes(first)]
    assert told == [["mood"], ["tags", "net"], ["code", "grid"], ["code", "price"]]
    (found,) = await scene.rows('SELECT *, tags[1], "a{b}" FROM "Odd Table %%"')
    assert found[:4] == (1, "a'b\\c\td\ne", "so so", ['x,"y"', "NULL", None, "\\"])
    assert (found[4], found[5], found[10]) == ([[1, 2], [3, None]], 8, b"\0\1\2")
    again = await scene.run(json.dumps(ROW) + "\n", '"Odd Table %"', name="r.ndjson", mode="upsert", formats=plain)
    assert await scene.effects(again) == (0, 0, 1)
    other = ROW | {"raw": {"b": 2}, "tags": [], "blob": "\\x00"}
    changed = await scene.run(json.dumps(other) + "\n", '"Odd Table %"', name="r.ndjson", mode="upsert", formats=plain)
    assert (await scene.effects(changed), await scene.errors(changed)) == ((0, 1, 0), [])


async def test_columns_differing_in_last_character_are_imported_separately(scene: Scene) -> None:
    one, two = "x" * 62 + "1", "x" * 62 + "2"
    await scene.table(f"CREATE TABLE t ({one} int PRIMARY KEY, {two} int)", "INSERT INTO t VALUES (1, 1)")
    job = await scene.run(f"{one},{two}\n1,2\n2,3\n", "t", mode="upsert")
    assert (await scene.effects(job), await scene.rows("SELECT * FROM t ORDER BY 1")) == ((1, 1, 0), [(1, 2), (2, 3)])


async def test_import_handles_table_with_1000_columns(scene: Scene) -> None:
    names = [f"c{n}" for n in range(1_000)]
    await scene.table(f"CREATE TABLE wide (c0 int PRIMARY KEY, {', '.join(f'{name} int' for name in names[1:])})")
    text = ",".join(names) + "\n" + "".join(",".join([str(row)] * 1_000) + "\n" for row in range(3))
    assert (await scene.run(text, "wide")).status == "completed"
    job = await scene.run(text.replace("\n2,", "\n2,7"), "wide", mode="upsert")
    assert (job.status, await scene.effects(job)) == ("completed", (0, 1, 2))


async def test_partitioned_table_row_without_partition_fails_alone(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
        "CREATE TABLE t26 PARTITION OF t FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
        "CREATE TABLE t27 PARTITION OF t FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')",
    )
    job = await scene.run("id,at\n1,2026-05-01\n2,2030-01-01\n3,2027-05-01\n", "t")
    assert (await scene.errors(job), await scene.count("t26"), await scene.count("t27")) == ([(2, "check")], 1, 1)


async def test_upsert_compares_inet_keys_with_server_equality(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (net inet PRIMARY KEY, n int)", "INSERT INTO t VALUES ('10.0.0.1', 1)")
    job = await scene.run("net,n\n10.0.0.1/32,2\n10.0.0.2,1\n10.0.0.2/32,2\n", "t", mode="upsert")
    assert await scene.rows("SELECT net::text, n FROM t ORDER BY 1") == [("10.0.0.1/32", 2), ("10.0.0.2/32", 1)]
    assert await scene.errors(job) == [(3, "exists")]


async def test_import_into_view_system_or_missing_table_is_rejected(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (n int)", "CREATE VIEW v AS SELECT * FROM t")
    for name, says in (("v", "a view"), ("tidemill.job", "Cannot import into schema"), ("gone", "gone")):
        with pytest.raises(InvalidInput, match=says):
            await scene.submit("n\n1\n", name)


async def test_sensitive_value_is_hidden_in_row_errors(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, pin inet UNIQUE, n int CHECK (n > 0))",
        "INSERT INTO t VALUES (1, '9.9.9.9', 1)",
    )
    resource = with_fields(await look_at(scene.db, "t"), pin={"sensitive": True})
    text = "id,pin,n\n2,9.9.9.9,1\n3,topsecret,1\n4,8.8.8.8,1\n5,8.8.8.8,1\n"
    job = await scene.run(text, "t", resource=resource)
    told = json.dumps(await scene.outcomes(job))
    assert [row for row, _, _ in await scene.outcomes(job)] == [1, 2, 4]
    assert not any(secret in told for secret in ("9.9.9.9", "8.8.8.8", "topsecret"))


async def test_underscore_table_column_is_imported_and_row_column_needs_mapping(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (_id int PRIMARY KEY, _row int, n int)")
    job = await scene.run("_id,n,_note,_row,_errors\n1,2,x,7,y\n", "t")
    assert (job.status, await scene.rows("SELECT * FROM t")) == ("completed", [(1, None, 2)])
    job = await scene.run("_id,_row\n2,7\n", "t", mapping={"_row": "_row"})
    assert (job.status, await scene.rows("SELECT _row FROM t WHERE _id = 2")) == ("completed", [(7,)])
