"""Exports of tables with unusual columns and names, and of objects that cannot be exported."""

import pytest

from exports.scenes import Scene, lines
from support import rows
from tidemill.core.errors import InvalidInput


async def test_export_handles_every_column_type_and_quoted_identifiers(scene: Scene) -> None:
    await scene.run(
        'CREATE SCHEMA "My Shop"',
        "CREATE TYPE \"My Shop\".\"Mood\" AS ENUM ('so, so', 'fine')",
        'CREATE TYPE "My Shop".point AS (x integer, "y z" text)',
        'CREATE TABLE "My Shop"."Order ""Lines""" (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "Na""me" text,'
        ' mood "My Shop"."Mood", place "My Shop".point, moods "My Shop"."Mood"[],'
        " twice integer GENERATED ALWAYS AS (n * 2) STORED,"
        " n integer, loose json)",
        'INSERT INTO "My Shop"."Order ""Lines""" ("Na""me", mood, place, moods, n, loose)'
        " VALUES ('x', 'so, so', '(1,\"a, b\")', '{fine,\"so, so\"}', 21, E'{\"a\":\\n  1}')",
    )
    table = '"My Shop"."Order ""Lines"""'
    assert lines(await scene.stream(table)) == [
        'id,"Na""me",mood,place,moods,twice,n,loose',
        '1,x,"so, so","(1,""a, b"")","{fine,""so, so""}",42,21,"{""a"":',
        '  1}"',
    ]
    assert await scene.objects(table) == [
        {
            "id": 1,
            'Na"me': "x",
            "mood": "so, so",
            "place": {"x": 1, "y z": "a, b"},
            "moods": ["fine", "so, so"],
            "twice": 42,
            "n": 21,
            "loose": {"a": 1},
        }
    ]
    for where in ("mood=so, so", 'place=(1,"a, b")', 'moods=["fine", "so, so"]', "twice[gt]=41", 'Na"me[in]=x,y'):
        assert len(await scene.objects(table, where)) == 1, where


async def test_views_and_partitions_are_exported_but_sequences_are_rejected(scene: Scene) -> None:
    await scene.run(
        "CREATE TABLE parts (id integer, day date NOT NULL) PARTITION BY RANGE (day)",
        "CREATE TABLE parts_26 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
        "INSERT INTO parts VALUES (1, '2026-02-03')",
        "CREATE VIEW seen AS SELECT id, day, true AS yes FROM parts",
        "CREATE SEQUENCE counted",
    )
    assert lines(await scene.stream("parts")) == ["id,day", "1,2026-02-03"]
    assert lines(await scene.stream("seen", "yes=true")) == ["id,day,yes", "1,2026-02-03,true"]
    with pytest.raises(InvalidInput, match="a sequence"):
        await scene.stream("counted")


async def test_fields_and_order_follow_request_and_default_to_key_order(scene: Scene) -> None:
    await scene.run(
        "CREATE TABLE t (id int PRIMARY KEY, w text)", "INSERT INTO t VALUES (2, 'a'), (10, 'b'), (1, NULL), (3, 'a')"
    )
    assert [one["id"] for one in await scene.objects("t")] == [1, 2, 3, 10]
    assert lines(await scene.stream("t", fields=("w", "id"), order=("w", "-id"))) == [
        "w,id",
        "a,3",
        "a,2",
        "b,10",
        ",1",
    ]
    assert lines(await scene.stream("t", "w[is_null]=true")) == ["id,w", "1,"]
    assert lines(await scene.stream("t", "id=77")) == ["id,w"], "a file without rows has a header"


@pytest.mark.parametrize("name", ["tidemill.job", "pg_catalog.pg_class", "information_schema.tables", "pg_toast.x"])
async def test_export_of_tidemill_or_system_table_is_rejected(scene: Scene, name: str) -> None:
    with pytest.raises(InvalidInput, match="Cannot export from schema"):
        await scene.stream(name)


async def test_missing_column_privilege_is_reported_before_export_starts(scene: Scene) -> None:
    await scene.run(
        "CREATE TABLE t (id int PRIMARY KEY, secret text)",
        "INSERT INTO t VALUES (1, 'x')",
        "CREATE ROLE reader_of_some",
    )
    name = (await rows(scene.db, "SELECT current_database()"))[0][0]
    try:
        await scene.run("GRANT SELECT (id) ON t TO reader_of_some", f"ALTER DATABASE {name} SET role = reader_of_some")
        await scene.db._pool.drain()
        assert lines(await scene.stream("t", fields=("id",))) == ["id", "1"]
        with pytest.raises(InvalidInput, match=r"lacks SELECT \(secret\) on public.t"):
            await scene.stream("t")
    finally:
        await scene.run(f"SET ROLE NONE; ALTER DATABASE {name} RESET role")
        await scene.db._pool.drain()
        await scene.run("DROP OWNED BY reader_of_some", "DROP ROLE reader_of_some")


async def test_column_named_like_internal_table_alias_is_exported(scene: Scene) -> None:
    await scene.run(
        "CREATE TYPE pair AS (a int, b int)",
        "CREATE TABLE odd (id int PRIMARY KEY, t pair)",
        "INSERT INTO odd VALUES (1, '(2,3)')",
    )
    assert await scene.objects("odd") == [{"id": 1, "t": {"a": 2, "b": 3}}]
