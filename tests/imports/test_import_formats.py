"""The same rows from every format."""

import datetime as dt
import gzip
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from imports.scenes import Scene
from support.workbooks import workbook
from tidemill.core.errors import InvalidColumns

ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "Ann", "born": dt.date(1980, 2, 29), "ok": True, "score": 1.5},
    {"id": 2, "name": None, "born": dt.date(1990, 1, 1), "ok": False, "score": 2.0},
    {"id": 3, "name": "Zoë", "born": None, "ok": None, "score": None},
]
TABLE = "CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL, born date, ok boolean, score double precision)"


def as_parquet() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(ROWS), file)
    return file.getvalue()


def as_csv() -> bytes:
    lines = (",".join("" if value is None else str(value) for value in row.values()) for row in ROWS)
    return ("id,Name,BORN,ok,score\n" + "\n".join(lines) + "\n").encode()


FILES = {
    "rows.csv": as_csv(),
    "rows.csv.gz": gzip.compress(as_csv()),
    "rows.ndjson": "\n".join(json.dumps(row, default=str) for row in ROWS).encode(),
    "rows.json": json.dumps(ROWS, default=str).encode(),
    "rows.xlsx": workbook([list(ROWS[0]), *(list(row.values()) for row in ROWS)]),
    "rows.parquet": as_parquet(),
}


@pytest.mark.parametrize("name", FILES)
async def test_import_reads_same_rows_from_every_format(scene: Scene, name: str) -> None:
    await scene.table(TABLE)
    job = await scene.run(FILES[name], "t", name=name)
    assert (await scene.errors(job), job.counts.done) == ([(2, "name.required")], 2)
    assert await scene.rows("SELECT id, name, born, ok, score FROM t ORDER BY 1") == [
        (1, "Ann", dt.date(1980, 2, 29), True, 1.5),
        (3, "Zoë", None, None, None),
    ]


async def test_json_rows_with_unknown_field_or_wrong_shape_fail_alone(scene: Scene) -> None:
    await scene.table(TABLE)
    good = "".join(f'{{"id": {n}, "name": "a"}}\n' for n in range(1, 201))  # more than the inspected sample
    text = good + '{"id": 201, "name": "b", "nmae": 1}\n7\nnull\n{"id": 205, "_row": 3, "name": "e"}\n'
    job = await scene.run(text, "t", name="r.ndjson")
    assert await scene.errors(job) == [(201, "nmae.unknown_field"), (202, "shape"), (203, "shape")]
    assert (await scene.count("t"), job.counts.done) == (201, 201)


async def test_unknown_and_missing_columns_are_all_reported_at_submit(scene: Scene) -> None:
    await scene.table(TABLE)
    with pytest.raises(InvalidColumns) as refused:
        await scene.submit("id,nmae,size\n1,a,2\n", "t")
    assert all(name in str(refused.value) for name in ("nmae", "size", '"name"'))
    assert await scene.count("tidemill.job") == 0


async def test_unknown_columns_message_is_shortened_for_wide_header(scene: Scene) -> None:
    await scene.table(TABLE)
    header = ",".join(["id", "name", *(f"c{n}" for n in range(10_000))])
    with pytest.raises(InvalidColumns) as refused:
        await scene.submit(header + "\n", "t")
    assert len(str(refused.value)) < 2_000
    assert str(refused.value).endswith("; and 9,980 more")
    assert len(refused.value.problems) == 10_000
