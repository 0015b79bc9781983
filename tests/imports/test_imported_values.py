"""Values of all kinds, through the whole import."""

import json
from typing import Any

from imports.scenes import Scene, look_at, with_fields

TABLE = """CREATE TABLE t (id int PRIMARY KEY, small smallint, price numeric(5,2), ok boolean, day date, note text,
    state text NOT NULL DEFAULT 'new', at timestamptz NOT NULL DEFAULT '2000-01-01'::timestamptz + '1 day')"""


async def test_number_date_and_boolean_spellings_are_parsed_or_rejected_per_field(scene: Scene) -> None:
    await scene.table(TABLE)
    resource = with_fields(await look_at(scene.db, "t"), day={"formats": ("%d.%m.%Y", "%m/%d/%Y")})
    text = (
        "id,small,price,ok,day\n1, 7 ,1e2,Yes,2026-11-15\n2,32768,1,no,15.11.2026\n3,1.0,999.995,on,11/15/2026\n"
        "4,-32768,999.994,perhaps,31.02.2026\n5,,,,\n6,0x1,abc,2,\n7,   ,\t,T,2026-11-15T10:00:00\n"
    )
    job = await scene.run(text, "t", resource=resource, formats={"price": "plain"})
    found = await scene.rows("SELECT id, small, price::float, ok, day::text FROM t ORDER BY 1")
    assert found == [
        (1, 7, 100.0, True, "2026-11-15"),
        (5, None, None, None, None),
        (7, None, None, True, "2026-11-15"),
    ]
    told = {row: [one["field"] for one in error.get("errors", [error])] for row, _, error in await scene.outcomes(job)}
    assert told == {2: ["small"], 3: ["price"], 4: ["ok", "day"], 6: ["small", "price", "ok"]}


async def test_empty_missing_and_null_values_take_table_defaults(scene: Scene) -> None:
    await scene.table(TABLE)
    rows: list[dict[str, Any]] = [
        {"id": 1, "note": "", "state": None, "at": None},
        {"id": 2, "note": None, "state": "", "at": "2026-01-01T00:00:00Z"},
        {"id": 3},
        {"id": 4, "note": " x ", "state": "old", "at": "2026-01-01"},
    ]
    job = await scene.run("".join(json.dumps(row) + "\n" for row in rows), "t", name="r.ndjson")
    assert job.status == "completed"
    assert await scene.rows("SELECT id, note, state, extract(year FROM at)::int FROM t ORDER BY 1") == [
        (1, None, "new", 2000),
        (2, None, "new", 2026),
        (3, None, "new", 2000),
        (4, " x ", "old", 2026),
    ]


async def test_values_postgresql_cannot_store_fail_only_their_rows(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, note text, doc jsonb, tags text[])")
    rows = [
        b'{"id": 1, "note": "a\\u0000b"}',
        b'{"id": 2, "note": "half \\ud800"}',
        b'{"id": 3, "doc": {"a": "\\udc00"}}',
        b'{"id": 4, "tags": ["\\u0000"]}',
        b'{"id": 5, "tags": ["\\ud800"]}',
        b'{"id": 6, "doc": "{\\"a\\": \\"\\\\u0000\\"}"}',
        b'{"id": 7, "tags": "[\\"\\\\ud800\\"]"}',
        b'{"id": 8, "strange\\u0000": "x\\u0000"}',
        b'{"id": 9, "strange\\ud800": "\\ud800"}',
        b"[1, 2]",
        b'"text\\u0000"',
        b"not json",
        b'{"id": 13, "note": ' + b"1" * 5_000 + b"}",
        b'{"id": ' + b"9" * 5_000 + b"}",
        b'{"id": 15, "note": "good \\ud83d\\ude00", "doc": {"a": 1e5}, "tags": ["\\\\u0000"]}',
        b'{"id": 15, "note": "again"}',
        b'{"id": 15, "note": "again \\ud800"}',
    ]
    job = await scene.run(b"\n".join(rows), "t", name="r.ndjson", duplicates="first")
    good = await scene.rows("SELECT id, tags FROM t ORDER BY 1")
    assert good[-1] == (15, ["\\u0000"])
    assert [one for (one, _) in good] in ([13, 15], [15])
    failed = [row for row, status, _ in await scene.outcomes(job) if status == "failed"]
    assert failed == [n for n in range(1, 18) if n not in [one for (one, _) in good] and n != 16]


async def test_two_megabyte_cell_is_imported(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, note text)")
    big = 'ä\t"\\' * 400_000
    text = "id,note\n" + "".join(f'{n},"{big.replace(chr(34), chr(34) * 2)}"\n' for n in range(3)) + "x,small\n"
    scene.mill.settings = scene.settings.model_copy(update={"max_row_bytes": 8 << 20})
    job = await scene.run(text, "t")
    assert await scene.rows("SELECT count(*), max(length(note)) FROM t") == [(3, len(big))]
    assert await scene.errors(job) == [(4, "id.type")]


async def test_normalizers_run_before_validation_and_duplicate_detection(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (email text PRIMARY KEY, name text CHECK (length(name) <= 5))")
    changes = {"email": {"normalize": ("trim", "lower")}, "name": {"normalize": ("collapse", "upper")}}
    resource = with_fields(await look_at(scene.db, "t"), **changes)
    text = 'email,name\n A@x ," a   b "\na@X,second\nb@x,too long\n   ,x\n'
    job = await scene.run(text, "t", resource=resource, duplicates="first")
    assert await scene.rows("SELECT * FROM t") == [("a@x", "A B")]
    assert [(row, status) for row, status, _ in await scene.outcomes(job)] == [
        (2, "skipped"),
        (3, "failed"),
        (4, "failed"),
    ]


async def test_numbers_in_json_arrays_keep_all_digits(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, a numeric[], b text[], j jsonb[])")
    text = (
        '{"id": 1, "a": [1.00000000000000000001, 12345678901234567890.10], "b": [1.50], "j": [{"x": 1.10}, 2.50]}\n'
        '{"id": 2, "a": "[0.1234567890123456789012]"}\n{"id": 3, "a": [1.5, "x"]}\n'
    )
    job = await scene.run(text, "t", name="r.ndjson")
    assert await scene.errors(job) == [(3, "a.type")]
    assert await scene.rows("SELECT a::text, b::text, j::text FROM t ORDER BY id") == [
        ("{1.00000000000000000001,12345678901234567890.10}", "{1.50}", '{"{\\"x\\": 1.10}",2.50}'),
        ("{0.1234567890123456789012}", None, None),
    ]


async def test_postgresql_array_literals_are_imported(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, a int[])")
    given = ["[0:1]={1,2}", " {3} ", "[-1:0][1:2]={{1,2},{3,4}}", "[0:5]={1}", "[1, 2]"]
    job = await scene.run("id;a\n" + "".join(f'{row};"{text}"\n' for row, text in enumerate(given, 1)), "t")
    assert [row for row, _ in await scene.errors(job)] == [4]
    found = [text for (text,) in await scene.rows("SELECT a::text FROM t ORDER BY id")]
    assert found == ["[0:1]={1,2}", "{3}", "[-1:0][1:2]={{1,2},{3,4}}", "{1,2}"]


async def test_time_value_of_bare_digits_is_rejected(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, at time)")
    given = ["13:45", "13:45:10.5", "13:45:10+02", "10:00:00.9999999", "20261115", "12", "1345", "25:00"]
    job = await scene.run("id,at\n" + "".join(f"{row},{text}\n" for row, text in enumerate(given, 1)), "t")
    assert await scene.errors(job) == [(row, "at.type") for row in (5, 6, 7, 8)]
    found = [text for (text,) in await scene.rows("SELECT at::text FROM t ORDER BY id")]
    assert found == ["13:45:00", "13:45:10.5", "13:45:10", "10:00:01"]
