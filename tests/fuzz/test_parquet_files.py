"""Parquet: damaged files are read in a reader process, as in production, so that a crash ends only that process."""

import io
import json
from contextlib import closing

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyarrow import parquet

from fuzz.mutations import mutated_parquet
from fuzz.reading import ROWS_MAX, assert_safe
from fuzz.targets import fuzz
from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import Checkpoint, SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.files.reader_process import IsolatedReader, ReaderLimits

ROWS_PER_BLOCK, BLOCK_BYTES = 500, 1 << 20


def written(columns: dict[str, object], **options: object) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file, **options)
    return file.getvalue()


NESTED = pa.array([[{"a": 1, "b": "x"}], None, []], pa.list_(pa.struct({"a": pa.int64(), "b": pa.string()})))
DECIMALS = pa.array([None, 1, 2], pa.decimal128(38, 9))
TIMES = pa.array([0, None, 1], pa.timestamp("ns", "UTC"))
SAMPLES = (
    written({"id": [1, 2, 3], "name": ["a", None, "é"], "at": TIMES}),
    written({"tags": [["a", "b"], [], ["a"]], "of": NESTED}),
    written({"n": DECIMALS, "x": [float("nan"), 1.5, None], "ok": [True, None, False]}, compression="gzip"),
    written({"id": list(range(2_000)), "w": ["x"] * 2_000}, row_group_size=500, compression="zstd"),
    written({"id": ["abc", "abd", "b"]}, use_dictionary=False, column_encoding={"id": "DELTA_BYTE_ARRAY"}),
    written({"id": pa.array([], pa.int64())}),
)


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> ReaderLimits:
    folder = tmp_path_factory.mktemp("blobs")
    return ReaderLimits(str(folder), max_row_bytes=1 << 16, max_unpacked_bytes=32 << 20, cpu_s=30, memory_mb=1_024)


def read(
    limits: ReaderLimits, reference: SourceReference, checkpoint: Checkpoint
) -> tuple[list[tuple[bytes, Checkpoint]], str | None]:
    """Return the rows, each with the checkpoint after its block, and the error that ended the read."""
    rows: list[tuple[bytes, Checkpoint]] = []
    try:
        with closing(IsolatedReader(limits).open_source(reference, checkpoint)) as source:
            while (block := source.read(ROWS_PER_BLOCK, BLOCK_BYTES)).inputs:
                rows += [(text, block.checkpoint) for text in block.inputs]
                assert len(rows) <= ROWS_MAX
    except InvalidInput as error:
        assert_safe(error)
        assert "CPU time" not in str(error)
        return rows, str(error)
    return rows, None


@fuzz(examples=40, data=mutated_parquet(SAMPLES), at=st.integers(0, 9_999))
def test_damaged_parquet_gives_rows_or_a_declared_error(limits: ReaderLimits, data: bytes, at: int) -> None:
    blobs = open_blob_store(limits.blobs)
    reference = SourceReference(blob=blobs.put([data]).id, format="parquet")
    rows, error = read(limits, reference, {})
    for text, _ in rows:
        json.loads(text)
    if rows and error is None:
        checkpoint = rows[at % len(rows)][1]
        rest, resumed_error = read(limits, reference, checkpoint)
        assert [text for text, _ in rest] == [text for text, _ in rows[checkpoint["row"] :]]
        assert resumed_error is None
    blobs.remove(reference.blob)
