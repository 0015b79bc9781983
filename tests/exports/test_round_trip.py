"""An export, imported and exported again, is byte-identical to the first file."""
# ruff: noqa: E501  values in a table of values

import pytest

from exports.scenes import Scene
from imports import scenes as imports
from support import rows

pytestmark = pytest.mark.needs_feature("imports")

TABLE = """
CREATE TYPE mood AS ENUM ('so so', 'it''s "good"');
CREATE TABLE nasty (
    id integer PRIMARY KEY, word text, short varchar(40), fixed char(6), amount numeric, price numeric(12, 3), ratio double precision,
    small real, big bigint, day date, at timestamptz, local timestamp, hour time, yes boolean, mood mood, key uuid,
    document jsonb, raw bytea, tags text[], numbers integer[], grid integer[][], net inet, span interval);
CREATE TABLE again (LIKE nasty INCLUDING ALL);
"""
VALUES = r"""
INSERT INTO nasty (id, word, short, amount, ratio, small, day, at, local, document, raw, tags) VALUES
    (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (2, '', '', 0, '-0', '-0', 'infinity', '-infinity', 'infinity', '{}', '', '{}'),
    (3, 'a "quoted", word', E'two\nlines', 123456789012345678901234567890, 0.1, 1e-10, '0001-01-01',
        '2026-11-15 12:00:00.000001+02', '2026-02-28 23:59:59.999999', E'{"a": "line\\nend \\"q\\" \\\\ é", "b": [1, 2.5, null, true, {"c": ""}]}',
        '\x00ff0a', ARRAY['a,b', NULL, 'q"x', '', 'NULL', E'back\\slash', '{}', ' blank ']),
    (4, E'\r\n', E'tab\there', -99999999999999999999, 1.7976931348623157e308, 3.4028235e38, '9999-12-31', 'epoch', 'epoch',
        '[]', E'\\x5c', ARRAY[E'line\nend']),
    (5, '''', '''''=1+1', 1e30, 'NaN', 'Infinity', '2024-02-29', '2026-06-30 00:00:00-11', '0001-01-01', '"text"', '\x22', '{NULL}'),
    (6, '=1+1', '-1', 'NaN', '-Infinity', 'NaN', '-infinity', 'infinity', '-infinity', 'true', '\x2c', NULL),
    (7, U&'\00E9\D83D\DE00\2028', '@sum', 0.12345678901234567890123456789, 5e-324, 1e-45, NULL, NULL, NULL, '{"much": 12345678901234567890.123456789}', NULL, ARRAY['ü']),
    (8, '  blanks  ', 'NULL', 1, 1e21, 1e7, NULL, NULL, NULL, '"\u00fc"', NULL, ARRAY['null']),
    (9, '\N', '\.', 1, 0, 0, NULL, NULL, NULL, 'null', NULL, NULL),
    (10, E'\n=1', U&'\FF1D1', 2, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
UPDATE nasty SET fixed = 'ab', price = -12.5, big = -9223372036854775808, hour = '23:59:59.5', yes = id = 3, mood = 'it''s "good"',
    key = '0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0', numbers = '{1,NULL,3}', grid = '{{1,2},{3,4}}', net = '10.0.0.0/8', span = '1 mon -2 days 03:04:05'
    WHERE id IN (3, 4);
"""
SPREADSHEET = {"spreadsheet_safe": True}


@pytest.fixture
async def scene(scene: Scene) -> Scene:
    await scene.run(TABLE, VALUES)
    return scene


async def bring_in(scene: Scene, data: bytes, name: str, **options: bool) -> None:
    importing = imports.Scene(scene.db, scene.settings, scene.mill)
    job = await importing.run(data, "again", name=name, keep_empty=True, **options)
    assert await importing.errors(job) == []
    assert job.counts.done == 10


@pytest.mark.parametrize(
    ("format_", "options"), [("csv", {}), ("csv", SPREADSHEET), ("ndjson", {})], ids=["csv", "safe csv", "ndjson"]
)
async def test_export_of_reimported_export_is_byte_identical(
    scene: Scene, format_: str, options: dict[str, bool]
) -> None:
    if format_ == "ndjson":  # there, no value and the null of JSON are written alike
        await rows(scene.db, "UPDATE nasty SET document = NULL WHERE document = 'null'")
    first = await scene.stream("nasty", format=format_, **options)
    await bring_in(scene, first, f"nasty.{format_}", **options)
    assert await scene.stream("again", format=format_, **options) == first
    differing = await rows(
        scene.db, "SELECT n.id FROM nasty n JOIN again a USING (id) WHERE n::text IS DISTINCT FROM a::text"
    )
    assert differing == []


async def test_export_is_utf8_despite_client_encoding_setting(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await scene.stream("nasty", format="csv")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    await scene.db._pool.drain()
    assert await scene.stream("nasty", format="csv") == first
    await bring_in(scene, first, "nasty.csv")
    assert await scene.stream("again", format="csv") == first


ODD = r"""
CREATE TYPE vague AS ENUM ('', 'x');
CREATE TABLE odd (
    id integer PRIMARY KEY, said text DEFAULT 'x', many int DEFAULT 5, at timestamptz DEFAULT now(), day date, hour time,
    moment timestamptz, local timestamp, bits varbit, called name, letter "char", words tsvector, vague vague);
CREATE TABLE odd_again (LIKE odd INCLUDING ALL);
INSERT INTO odd VALUES
    (1, NULL, NULL, NULL, '10000-01-01', '24:00', '10000-01-01 00:00Z', '294275-12-31 23:59:59', '', '', '', '', ''),
    (2, '', 0, 'infinity', '4713-01-01 BC', '00:00', '0044-03-15 12:00Z BC', '4713-01-01 BC', NULL, NULL, NULL, NULL, NULL),
    (3, 'a', 1, 'epoch', '5874897-12-31', NULL, '9999-12-31 23:59:59-12', '0001-01-01', '101', '=1', '=', 'a b', 'x');
"""


@pytest.mark.parametrize(
    ("format_", "mode"), [("csv", "insert"), ("ndjson", "insert"), ("csv", "upsert"), ("ndjson", "upsert")]
)
async def test_nulls_and_dates_outside_python_range_survive_round_trip(scene: Scene, format_: str, mode: str) -> None:
    await scene.run(ODD)
    if mode == "upsert":
        await scene.run("INSERT INTO odd_again (id, day, hour) VALUES (1, now(), now()), (3, now(), now())")
    first = await scene.stream("odd", format=format_)
    importing = imports.Scene(scene.db, scene.settings, scene.mill)
    job = await importing.run(first, "odd_again", name=f"odd.{format_}", keep_empty=True, mode=mode)
    assert await importing.outcomes(job) == []
    assert await scene.stream("odd_again", format=format_) == first


@pytest.mark.parametrize("format_", ["csv", "ndjson", "json", "parquet"])
async def test_nan_infinity_and_empty_bytes_survive_round_trip(scene: Scene, format_: str) -> None:
    await scene.run("CREATE TABLE rare (id int PRIMARY KEY, n float8, f real, data bytea)")
    await scene.run(
        "INSERT INTO rare VALUES (1, 'NaN', 'Infinity', ''), (2, '-Infinity', NULL, NULL), (3, 5e-324, 1, 'a')"
    )
    await scene.run("CREATE TABLE rare_again (LIKE rare INCLUDING ALL)")
    importing = imports.Scene(scene.db, scene.settings, scene.mill)
    data = await scene.stream("rare", format=format_)
    job = await importing.run(data, "rare_again", name=f"rare.{format_}", keep_empty=True)
    assert await importing.outcomes(job) == []
    differing = "SELECT id FROM (TABLE rare EXCEPT TABLE rare_again) other"
    assert (job.counts.done, await rows(scene.db, differing)) == (3, [])


async def test_missing_json_field_takes_default_but_explicit_null_stays_null(scene: Scene) -> None:
    await scene.run(ODD)
    importing = imports.Scene(scene.db, scene.settings, scene.mill)
    await importing.run(
        '{"id": 7}\n{"id": 8, "said": null, "many": null, "at": null}\n', "odd_again", name="o.ndjson", keep_empty=True
    )
    found = await rows(scene.db, "SELECT id, said, many, at IS NULL FROM odd_again ORDER BY id")
    assert found == [(7, "x", 5, False), (8, None, None, True)]


async def test_formula_in_name_or_char_column_is_escaped_and_restored(scene: Scene) -> None:
    await scene.run(ODD)
    first = await scene.stream("odd", **SPREADSHEET)
    assert b",'=1,'=," in first
    importing = imports.Scene(scene.db, scene.settings, scene.mill)
    await importing.run(first, "odd_again", name="odd.csv", keep_empty=True, **SPREADSHEET)
    assert await scene.stream("odd_again", **SPREADSHEET) == first


async def test_round_trip_without_keep_empty_is_identical_if_text_is_never_empty(scene: Scene) -> None:
    await rows(scene.db, "UPDATE nasty SET word = NULL, short = NULL WHERE id = 2")
    first = await scene.stream("nasty")
    importing = imports.Scene(scene.db, scene.settings, scene.mill)
    assert (await importing.run(first, "again", name="nasty.csv", formats={"price": "plain"})).counts.done == 10
    assert await scene.stream("again") == first


async def test_spreadsheet_safe_export_escapes_only_formula_like_text(scene: Scene) -> None:
    found = (await scene.stream("nasty", fields=("id", "word", "short", "ratio"), **SPREADSHEET)).decode()
    assert "5,','''=1+1,NaN" in found, "one more apostrophe than the value"
    assert "6,'=1+1,'-1,-Infinity" in found, "numbers are not escaped"
    assert "7,é😀\u2028,'@sum," in found
    assert "8,  blanks  ,NULL," in found
    assert "10,\"'\n=1\",'\uff1d1," in found, "a formula after a line break, and a full-width equals sign"
