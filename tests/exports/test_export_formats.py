"""Tables exported in any format can be imported without changes."""

from typing import Any

import pytest

from exports.scenes import Scene
from imports import scenes as imports
from support import rows

TABLE = """
CREATE TABLE odd (
    id integer PRIMARY KEY, word text, empty text, small smallint, big bigint, amount numeric, price numeric(12, 3),
    ratio double precision, day date, at timestamptz, local timestamp, hour time, yes boolean, key uuid, document jsonb,
    raw bytea, tags text[]);
CREATE TABLE again (LIKE odd INCLUDING ALL);
"""
VALUES = r"""
INSERT INTO odd VALUES
    (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (2, E'a "quoted", word\r\n\x07', '', -7, -9223372036854775808, 1234567890.125, -1.250, 0.1, '2024-02-29',
     '2026-11-15 12:00:00.000001+02', '2026-02-28 23:59:59.5', '23:59:59', true, '0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0',
     '{"a": "line\nend \"q\""}', '\x00ff0a', ARRAY['a,b', NULL, 'q"x']),
    (3, '007', '', 7, 9007199254740993, 1.5, 0, 1e300, '1899-12-31', '2026-11-15 12:00:00+02', 'epoch', '00:00', false,
     NULL, '[]', '\x00', '{}');
"""
LOST = {"xlsx": "empty"}  # spreadsheets cannot store empty text


@pytest.mark.needs_feature("imports")
@pytest.mark.parametrize(
    ("format_", "compression"),
    [("json", "none"), ("json", "gzip"), ("xlsx", "none"), ("parquet", "none"), ("csv", "gzip"), ("ndjson", "zstd")],
)
async def test_exported_file_imports_back_to_identical_table(scene: Scene, format_: str, compression: str) -> None:
    await scene.run(TABLE, VALUES)
    if format_ in LOST:
        await scene.run(f"UPDATE odd SET {LOST[format_]} = NULL")
    plan = await scene.plan("odd", format=format_, compression=compression)
    data = await scene.stream("odd", format=format_, compression=compression)
    importing = imports.Scene(scene.db, scene.settings, scene.mill)
    options: dict[str, Any] = {"keep_empty": True}
    job = await importing.run(data, "again", name=f"odd{plan.file_spec.suffix}", **options)
    assert await importing.errors(job) == []
    assert job.counts.done == 3
    differing = (
        "(SELECT * FROM odd EXCEPT SELECT * FROM again) UNION ALL (SELECT * FROM again EXCEPT SELECT * FROM odd)"
    )
    assert await rows(scene.db, differing) == []


async def test_workbook_export_reports_number_of_truncated_cells(scene: Scene) -> None:
    await scene.run(
        "CREATE TABLE long (id integer PRIMARY KEY, t text)", "INSERT INTO long VALUES (1, repeat('x', 40000))"
    )
    job = await scene.made("long", format="xlsx")
    assert job.counts.done == 1
    found = await rows(scene.db, f"SELECT result ->> 'cut_cells' FROM tidemill.outcome WHERE job_id = '{job.id}'")
    assert found == [("1",)]
