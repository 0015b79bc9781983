"""Introspection of keys, references and relation kinds, and the lookup of tables by name."""

import re

import pytest

from support import rows
from tables.introspect import look_at
from tidemill.core.errors import InvalidInput
from tidemill.store.database import Database
from tidemill.tables.introspection.table_introspection import find_table, introspect_table
from tidemill.tables.resource import Reference, TableName


async def test_introspection_reads_composite_keys_and_references(db: Database) -> None:
    resource = await look_at(
        db,
        "lines",
        "CREATE SCHEMA shop",
        'CREATE TABLE shop."Orders" (tenant integer, "No" text, PRIMARY KEY (tenant, "No"))',
        """CREATE TABLE lines (
             "order" text, tenant integer, line smallint, parent smallint, PRIMARY KEY (tenant, "order", line),
             FOREIGN KEY (tenant, "order") REFERENCES shop."Orders",
             FOREIGN KEY (tenant, "order", parent) REFERENCES lines)""",
    )
    assert resource.key == ("tenant", "order", "line")
    assert resource.unique == (resource.key,)
    assert resource.references == (
        Reference(("tenant", "order"), TableName("shop", "Orders"), ("tenant", "No")),
        Reference(("tenant", "order", "parent"), TableName("public", "lines"), ("tenant", "order", "line")),
    )
    assert [name for name in resource.field_names if resource.get_field(name).required] == ["order", "tenant", "line"]


KEYS: list[tuple[str, tuple[str, ...], int]] = [
    ("id integer PRIMARY KEY, email text UNIQUE", ("id",), 2),
    ("id bigserial PRIMARY KEY, email text UNIQUE", ("email",), 2),
    ("id uuid DEFAULT gen_random_uuid() PRIMARY KEY, email text UNIQUE", ("email",), 2),
    ("id bigserial PRIMARY KEY, email text UNIQUE, name text UNIQUE", ("id",), 3),
    ("id bigserial PRIMARY KEY, email text", ("id",), 1),
    ("id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a text UNIQUE, b text UNIQUE", (), 2),
    ("a text, b text, UNIQUE (b, a)", ("b", "a"), 1),
    ("a text, b text", (), 0),
    ("id bigserial PRIMARY KEY, email text UNIQUE DEFERRABLE", ("id",), 2),
]


async def test_introspection_prefers_single_natural_key_over_generated_id(db: Database) -> None:
    for number, (body, key, unique) in enumerate(KEYS):
        resource = await look_at(db, f"t{number}", f"CREATE TABLE t{number} ({body})")
        assert (resource.key, len(resource.unique)) == (key, unique), body


async def test_introspection_reads_only_unique_indexes_on_plain_columns(db: Database) -> None:
    resource = await look_at(
        db,
        "t",
        "CREATE TABLE t (a text, b text, c text, d text NOT NULL, EXCLUDE USING btree (c WITH =))",
        "CREATE UNIQUE INDEX ON t (b, a) INCLUDE (c)",
        "CREATE UNIQUE INDEX ON t (a DESC) NULLS NOT DISTINCT",
        "CREATE UNIQUE INDEX ON t (d) NULLS NOT DISTINCT",
        "CREATE UNIQUE INDEX ON t (a)",
        "CREATE UNIQUE INDEX ON t (c) WHERE a IS NULL",
        "CREATE UNIQUE INDEX ON t (lower(c))",
        "CREATE INDEX ON t (b)",
    )
    assert resource.unique == (("b", "a"), ("a",), ("d",))
    assert resource.nulls_equal == (("a",),), "of a column that has no NULL it does not matter"


async def test_partition_has_same_fields_and_keys_as_partitioned_table(db: Database) -> None:
    whole = await look_at(
        db,
        "events",
        "CREATE TABLE days (day date PRIMARY KEY) PARTITION BY RANGE (day)",
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')",
        "CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM ('2021-01-01') TO ('2022-01-01')",
        """CREATE TABLE events (day date REFERENCES days, n integer CHECK (n > 0), PRIMARY KEY (day, n))
           PARTITION BY RANGE (day)""",
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')",
    )
    assert whole.key == ("day", "n")
    assert whole.references == (Reference(("day",), TableName("public", "days"), ("day",)),)
    part = await look_at(db, "events_1")
    assert (part.fields, part.key, part.references) == (whole.fields, whole.key, whole.references)


async def test_find_table_accepts_unquoted_quoted_and_qualified_names(db: Database) -> None:
    for statement in (
        "CREATE SCHEMA shop",
        'CREATE SCHEMA "Odd.Schema"',
        "CREATE TABLE shop.users (a text)",
        "CREATE TABLE users (a text)",
        'CREATE TABLE "Users" (a text)',
        'CREATE TABLE "Order Lines" (a text)',
        'CREATE TABLE "Odd.Schema"."say ""hi""" (a text)',
        'CREATE TABLE "größe" (a text)',
    ):
        await rows(db, statement)
    found = {
        "users": TableName("public", "users"),
        " USERS ": TableName("public", "users"),
        '"Users"': TableName("public", "Users"),
        "shop.users": TableName("shop", "users"),
        'Shop."users"': TableName("shop", "users"),
        "Order Lines": TableName("public", "Order Lines"),
        '"Odd.Schema"."say ""hi"""': TableName("Odd.Schema", 'say "hi"'),
        "public.größe": TableName("public", "größe"),
    }
    for text, table in found.items():
        assert await db.run(find_table, text) == table
        assert await db.run(find_table, str(table)) == table
    async with db.transaction() as conn:
        await conn.execute("SET LOCAL search_path = nowhere, shop, public")
        assert await find_table(conn, "users") == TableName("shop", "users")


REFUSALS = [
    ("usres", 'Unknown table "usres". Did you mean public.users?'),
    ("shop.users", "Did you mean public.users?"),
    ("order lines", 'Did you mean public."Order Lines"?'),
    ("nothing_like_it", 'Unknown table "nothing_like_it". Create the table, or use schema.table.'),
    ("", "Invalid table name"),
    ("a.", "Invalid table name"),
    (".a", "Invalid table name"),
    ('"a', "Invalid table name"),
    ('a"b"', "Invalid table name"),
    ("a\0b", "Invalid table name"),
    ("\udc80", "Invalid table name"),
    ("db.public.users", "includes a database"),
    ("tidemill.job", "Cannot import into schema tidemill"),
    ("pg_catalog.pg_class", "Cannot import into schema pg_catalog"),
    ("PG_TEMP.x", "Cannot import into schema pg_temp"),
    ("information_schema.tables", "Cannot import into schema information_schema"),
    ("some_view", "Cannot import into public.some_view: it is a view"),
    ("kept", "public.kept: it is a materialized view"),
    ("far", "public.far: it is a foreign table"),
    ("numbers", "public.numbers: it is a sequence"),
    ("users; DROP TABLE users", "Unknown table"),
]


async def test_find_table_rejects_unknown_names_views_and_protected_schemas(db: Database) -> None:
    for statement in (
        "CREATE SCHEMA shop",
        "CREATE TABLE users (a text)",
        'CREATE TABLE "Order Lines" (a text)',
        "CREATE VIEW some_view AS SELECT 1",
        "CREATE MATERIALIZED VIEW kept AS SELECT 1",
        "CREATE SEQUENCE numbers",
        "CREATE FOREIGN DATA WRAPPER nowhere",
        "CREATE SERVER away FOREIGN DATA WRAPPER nowhere",
        "CREATE FOREIGN TABLE far (a text) SERVER away",
    ):
        await rows(db, statement)
    for text, said in REFUSALS:
        with pytest.raises(InvalidInput, match=re.escape(said)):
            await db.run(find_table, text)
    with pytest.raises(InvalidInput, match=r"Table public\.gone does not exist"):
        await db.run(introspect_table, TableName("public", "gone"))
    with pytest.raises(InvalidInput, match="Cannot import into schema tidemill"):
        await db.run(introspect_table, TableName("tidemill", "job"))
