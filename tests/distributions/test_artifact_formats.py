"""Files of distributions in every format, read back. Only workbooks and Parquet differ between query and function."""

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openpyxl
import pytest
from pyarrow import parquet

from distributions.scenes import FIELDS, PRICES, Scene, given
from support import rows
from tidemill.core.file_format import Compression, FileFormat
from tidemill.core.outcome import Fail
from tidemill.distributions.artifact_producer import ArtifactProducer
from tidemill.distributions.artifact_storage import ArtifactUpload
from tidemill.distributions.dataset import DistributionInput
from tidemill.files.blobs import open_blob_store

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Table = list[list[Any]]
NAMES = ["index", "text", "paid", "n"]
ROWS: Table = [["ABC", 'say "hi", \\.\n= 2', True, 7], ["ABC", "é", False, -7], ["ABC", None, None, 0]]
QUERY = r"""
SELECT %(index_key)s AS index, t AS text, p AS paid, n
FROM (VALUES (E'say "hi", \\.\n= 2', true, 7), ('é', false, -7), (NULL, NULL, 0)) AS v(t, p, n)
WHERE %(effective_date)s > 0 AND %(asofindicator)s <> '' -- the end
"""


def from_csv(data: bytes) -> Table:
    """Read CSV. Return None for empty values, because the rows contain no empty text."""
    return [[value or None for value in line] for line in csv.reader(io.StringIO(data.decode(), newline=""))]


def from_objects(found: list[dict[str, Any]]) -> Table:
    return [NAMES, *([one[name] for name in NAMES] for one in found)]


def from_ndjson(data: bytes) -> Table:
    return from_objects([json.loads(line) for line in data.splitlines()])


def from_xlsx(data: bytes) -> Table:
    (sheet,) = openpyxl.load_workbook(io.BytesIO(data)).worksheets
    return [list(row) for row in sheet.iter_rows(values_only=True)]


READ: dict[str, Callable[[bytes], Table]] = {
    "csv": from_csv,
    "ndjson": from_ndjson,
    "json": lambda data: from_objects(json.loads(data)),
    "xlsx": from_xlsx,
    "parquet": lambda data: from_objects(parquet.read_table(io.BytesIO(data)).to_pylist()),
    "gz": gzip.decompress,  # type: ignore[dict-item]
    "zst": zstd.decompress,  # type: ignore[dict-item]
}
FORMS = [(form, "none") for form in FileFormat] + [("csv", "gzip"), ("json", "gzip"), ("ndjson", "zstd")]


@pytest.mark.parametrize("made_by", ["query", "function"])
@pytest.mark.parametrize(("form", "compression"), FORMS)
async def test_file_of_every_format_contains_dataset_rows(
    scene: Scene, form: str, compression: str, made_by: str
) -> None:
    def function(_: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from (dict(zip(NAMES, row, strict=True)) for row in ROWS)

    if made_by == "query":
        scene.mill.dataset("said", **PRICES | {"query": QUERY})
    else:
        scene.mill.dataset("said", fields=FIELDS, read=["user"])(function)
    wanted = {"format": FileFormat(form), "compression": Compression(compression)}
    (made,) = await scene.run(given(), dataset="said", **wanted)
    assert (made["status"], made["rows"], made["error"]) == ("done", len(ROWS), None)
    data: Any = scene.read(made["path"])
    for ending in reversed(made["path"].rpartition("/")[2].split(".")[1:]):
        data = READ[ending](data)
    has_types = form in ("ndjson", "json") or (form != "csv" and made_by == "query")
    assert data == [NAMES, *(ROWS if has_types else map(texts, ROWS))]
    await scene.assert_whole()


def texts(row: list[Any]) -> list[str | None]:
    names = {True: "true", False: "false"}
    return [None if value is None else names[value] if isinstance(value, bool) else str(value) for value in row]


async def test_duplicate_and_quoted_column_names_are_kept(scene: Scene) -> None:
    query = 'SELECT true AS a, 1 AS a, false AS "100%%, ""{query}""" WHERE %(n)s = 1'
    scene.mill.dataset("odd", query=query, fields={"n": "integer"}, read=["user"])
    (made,) = await scene.run({"n": 1}, dataset="odd")
    assert scene.read(made["path"]) == b'a,a,"100%, ""{query}"""\ntrue,1,false\n'


async def test_ndjson_row_is_one_line_and_keeps_negative_zero(scene: Scene) -> None:
    query = """SELECT E'{"a":\\n1}'::json AS doc, '-0'::float8 AS zero, ARRAY[true] AS list WHERE %(n)s = 1"""
    scene.mill.dataset("docs", query=query, fields={"n": "integer"}, read=["user"], format="ndjson")
    (made,) = await scene.run({"n": 1}, dataset="docs")
    assert scene.read(made["path"]) == b'{"doc":{"a": 1},"zero":-0.0,"list":[true]}\n'


async def test_dropped_column_fails_one_file_and_next_file_succeeds(scene: Scene) -> None:
    scene.mill.dataset("flags", query="SELECT * FROM public.flags WHERE %(n)s > 0", fields={"n": "integer"})
    flags = scene.datasets["flags"]
    producer, blobs = ArtifactProducer(scene.db, max_queries=1, timeout_s=5), open_blob_store(scene.settings.blobs)

    async def make(threads: ThreadPoolExecutor, name: str) -> str:
        out = ArtifactUpload(blobs, name, flags.resolve_file_spec(), threads)
        await producer.write_artifact_rows(flags, DistributionInput.parse(flags.fields, {"n": 1}), out)
        await out.finish()
        return name

    await rows(scene.db, "CREATE TABLE public.flags AS SELECT true AS a, false AS b")
    with ThreadPoolExecutor(1) as threads:
        assert scene.read(await make(threads, "first")) == b"a,b\ntrue,false\n"
        await rows(scene.db, "ALTER TABLE public.flags DROP b")
        with pytest.raises(Fail, match="The dataset query failed"):
            await make(threads, "second")
        assert scene.read(await make(threads, "third")) == b"a\ntrue\n"
