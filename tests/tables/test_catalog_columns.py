"""Columns of tables become fields."""

from support import rows
from tables.introspect import look_at, rules
from tables.unusual_tables import assert_defaults_are_read, assert_types_are_read
from tidemill.store.database import Database
from tidemill.tables.introspection.table_introspection import introspect_table
from tidemill.tables.resource import TableName, find_resource_problems


async def test_introspection_reads_column_types_and_defaults(db: Database) -> None:
    await assert_types_are_read(db)
    await assert_defaults_are_read(db)


async def test_enum_column_becomes_text_field_with_ordered_values(db: Database) -> None:
    resource = await look_at(
        db,
        "people",
        "CREATE SCHEMA other",
        "CREATE TYPE other.\"Mood\" AS ENUM ('sad', 'o''k', 'Happy')",
        "ALTER TYPE other.\"Mood\" ADD VALUE 'fine' BEFORE 'Happy'",
        'CREATE TABLE people (mood other."Mood" DEFAULT \'sad\', moods other."Mood"[])',
    )
    mood, moods = resource.fields
    assert (mood.type, mood.sql_type, mood.default) == ("text", 'other."Mood"', "sad")
    assert mood.enum == ("sad", "o'k", "fine", "Happy")
    assert (moods.type, moods.element, moods.enum) == ("array", "text", ())


async def test_domain_column_has_base_type_and_all_domain_constraints(db: Database) -> None:
    resource = await look_at(
        db,
        "letters",
        "CREATE DOMAIN code AS varchar(12) DEFAULT 'none' CHECK (length(VALUE) >= 3)",
        "CREATE DOMAIN postcode AS code NOT NULL CHECK (VALUE ~ '^[a-z0-9]+$')",
        "CREATE DOMAIN cents AS bigint CHECK (VALUE > 0)",
        "CREATE TABLE letters (zip postcode, own postcode DEFAULT 'abc', price cents NOT NULL CHECK (price <= 500))",
    )
    zip_, own, price = resource.fields
    assert (zip_.sql_type, zip_.default, own.default) == ("public.postcode", "none", "abc")
    assert (zip_.nullable, zip_.required, zip_.min_length, zip_.max_length) == (False, False, 3, 12)
    assert zip_.pattern == "(?:[a-z0-9]+)"
    assert rules(price, "bits") == {"required": True, "nullable": False, "minimum": "1", "maximum": "500"}


async def test_generated_column_is_no_field_and_its_constraints_are_skipped(db: Database) -> None:
    resource = await look_at(
        db,
        "invoices",
        "CREATE TABLE parents (id integer PRIMARY KEY)",
        """CREATE TABLE invoices (
             id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, net numeric NOT NULL, note text,
             gone text, gross numeric GENERATED ALWAYS AS (net * 1.2) STORED UNIQUE CHECK (gross > 1),
             number text NOT NULL UNIQUE, FOREIGN KEY (id) REFERENCES parents)""",
        "ALTER TABLE invoices DROP COLUMN gone",
    )
    assert resource.field_names == ["net", "note", "number"]
    assert (resource.unique, resource.key, resource.references) == ((("number",),), ("number",), ())
    assert [field.required for field in resource.fields] == [True, False, True]
    assert find_resource_problems(resource) == []


async def test_introspection_reads_column_names_that_need_quoting(db: Database) -> None:
    names = [
        "MixedCase",
        "with space",
        'with"quote',
        "größe",
        "straße 1",
        "cost$",
        "select",
        "a.b",
        "VALUE",
        "%s",
        "it's",
    ]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    columns = ", ".join(f"{name} integer CHECK ({name} > 0)" for name in quoted)
    resource = await look_at(
        db,
        '"Odd ""Table"""',
        f'CREATE TABLE "Odd ""Table""" ({columns}, UNIQUE ({quoted[0]}, {quoted[2]}))'.replace("%", "%%"),
    )
    assert resource.table == TableName("public", 'Odd "Table"')
    assert str(resource.table) == 'public."Odd ""Table"""'
    assert resource.field_names == names
    assert {field.minimum for field in resource.fields} == {"1"}
    assert resource.key == ("MixedCase", 'with"quote')


async def test_before_insert_trigger_makes_not_null_column_optional(db: Database) -> None:
    table = "CREATE TABLE t (slug text NOT NULL CHECK (slug <> ''), n code NOT NULL)"
    domain = "CREATE DOMAIN code AS text CHECK (VALUE = 'x')"
    function = "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.slug = 1; RETURN NEW; END'"
    before = await look_at(db, "t", domain, table, function)
    assert (before.get_field("slug").required, before.get_field("slug").min_length) == (True, 1)
    trigger = "CREATE TRIGGER fill BEFORE {} ON t FOR EACH ROW EXECUTE FUNCTION fill()"
    assert await look_at(db, "t", trigger.format("UPDATE")) == before
    after = await look_at(db, "t", "DROP TRIGGER fill ON t", trigger.format("INSERT OR UPDATE"))
    assert (after.get_field("slug").required, after.get_field("slug").nullable, after.get_field("slug").min_length) == (
        False,
        False,
        None,
    )
    assert after.get_field("n").enum == ("x",), "a domain is judged before triggers are"
    assert await look_at(db, "t", "ALTER TABLE t DISABLE TRIGGER fill") == before


async def test_introspection_restores_search_path_and_datestyle(db: Database) -> None:
    await rows(db, "CREATE TYPE mood AS ENUM ('a')")
    await rows(db, "CREATE TABLE t (m mood, d date DEFAULT '2020-01-02' CHECK (d > '2019-12-31'))")
    async with db.transaction() as conn:
        await conn.execute("SET LOCAL search_path = pg_catalog, public; SET LOCAL datestyle = 'German'")
        mood, day = (await introspect_table(conn, TableName("public", "t"))).fields
        cursor = await conn.execute("SELECT current_setting('search_path'), current_setting('datestyle')")
        assert await cursor.fetchone() == ("pg_catalog, public", "German, DMY")
    assert (mood.sql_type, day.default, day.minimum) == ("public.mood", "2020-01-02", "2020-01-01")
