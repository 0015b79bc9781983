"""Columns of any table become fields."""

from catalog.looks import look_at, rules
from catalog.odd import assert_defaults_are_read, assert_types_are_read
from support import rows
from tidemill.domain.resource import Table, check
from tidemill.store.catalog import introspect
from tidemill.store.database import Database


async def test_types_and_defaults(db: Database) -> None:
    await assert_types_are_read(db)
    await assert_defaults_are_read(db)


async def test_enums_are_texts_with_their_values_in_order(db: Database) -> None:
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


async def test_domains_are_their_base_with_all_their_rules(db: Database) -> None:
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


async def test_what_cannot_be_written_is_no_field_and_what_names_it_is_the_servers(db: Database) -> None:
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
    assert resource.names == ["net", "note", "number"]
    assert (resource.unique, resource.key, resource.references) == ((("number",),), ("number",), ())
    assert [field.required for field in resource.fields] == [True, False, True]
    assert check(resource) == []


async def test_names_of_every_kind(db: Database) -> None:
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
    assert resource.table == Table("public", 'Odd "Table"')
    assert str(resource.table) == 'public."Odd ""Table"""'
    assert resource.names == names
    assert {field.minimum for field in resource.fields} == {"1"}
    assert resource.key == ("MixedCase", 'with"quote')


async def test_a_trigger_may_fill_in_what_is_missing(db: Database) -> None:
    table = "CREATE TABLE t (slug text NOT NULL CHECK (slug <> ''), n code NOT NULL)"
    domain = "CREATE DOMAIN code AS text CHECK (VALUE = 'x')"
    function = "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.slug = 1; RETURN NEW; END'"
    before = await look_at(db, "t", domain, table, function)
    assert (before.field("slug").required, before.field("slug").min_length) == (True, 1)
    trigger = "CREATE TRIGGER fill BEFORE {} ON t FOR EACH ROW EXECUTE FUNCTION fill()"
    assert await look_at(db, "t", trigger.format("UPDATE")) == before
    after = await look_at(db, "t", "DROP TRIGGER fill ON t", trigger.format("INSERT OR UPDATE"))
    assert (after.field("slug").required, after.field("slug").nullable, after.field("slug").min_length) == (
        False,
        False,
        None,
    )
    assert after.field("n").enum == ("x",), "a domain is judged before triggers are"
    assert await look_at(db, "t", "ALTER TABLE t DISABLE TRIGGER fill") == before


async def test_the_search_path_and_the_style_of_dates_are_as_before(db: Database) -> None:
    await rows(db, "CREATE TYPE mood AS ENUM ('a')")
    await rows(db, "CREATE TABLE t (m mood, d date DEFAULT '2020-01-02' CHECK (d > '2019-12-31'))")
    async with db.transaction() as conn:
        await conn.execute("SET LOCAL search_path = pg_catalog, public; SET LOCAL datestyle = 'German'")
        mood, day = (await introspect(conn, Table("public", "t"))).fields
        cursor = await conn.execute("SELECT current_setting('search_path'), current_setting('datestyle')")
        assert await cursor.fetchone() == ("pg_catalog, public", "German, DMY")
    assert (mood.sql_type, day.default, day.minimum) == ("public.mood", "2020-01-02", "2020-01-01")
