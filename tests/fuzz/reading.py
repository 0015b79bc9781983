"""Reads files for fuzz targets, and states what every reader must guarantee for any bytes."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from files.reading import walk
from tidemill.core.errors import InvalidInput, TidemillError, escape_unprintable
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import Checkpoint, InputDefect, InputSource
from tidemill.files import byte_streams, compression
from tidemill.files.formats import json_reader
from tidemill.files.source_opener import open_block_reader

ROW_LIMIT = 4_096
UNPACKED_LIMIT = 32 << 20
ROWS_MAX = 20_000  # a mutated file has fewer rows
MESSAGE_MAX_CHARS = 2_000
READ_SIZES = (1, 3, 64, 1 << 18)
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    input: bytes
    line: int
    defect: InputDefect | None


@dataclass
class Outcome:
    """All rows of a file, the checkpoint after each, and the error that ended the read, if any."""

    rows: list[Row] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    error: str | None = None

    def after(self, count: int) -> tuple[list[Row], str | None]:
        return self.rows[count:], self.error


class CutFile(io.BytesIO):
    """A file whose reads end at given offsets, as the chunks of a slow stream would."""

    def __init__(self, data: bytes, cuts: Sequence[int]) -> None:
        super().__init__(data)
        self._cuts = sorted(cuts)

    def read(self, size: int | None = -1, /) -> bytes:
        at = self.tell()
        end = next((cut for cut in self._cuts if cut > at), None)
        wanted = -1 if size is None else size
        return super().read(wanted if end is None else end - at if wanted < 0 else min(wanted, end - at))


def assert_safe(error: BaseException | str) -> None:
    """Assert that a message can be shown to a user: bounded, printable, and without internal names."""
    text = str(error)
    if isinstance(error, Exception) and not isinstance(error, TidemillError):
        text = escape_unprintable(text)  # as the TidemillError escapes it that the message becomes a part of
    assert 0 < len(text) <= MESSAGE_MAX_CHARS, f"{len(text)} characters"
    assert all(mark.isprintable() or mark in "\t\n" for mark in text), ascii(text)
    for internal in ("Traceback", " object at 0x", "/tmp/", "site-packages", "tidemill.files"):
        assert internal not in text, text


def opened(data: bytes | io.BytesIO, layout: dict[str, Any], checkpoint: Checkpoint | None = None) -> InputSource:
    return open_block_reader(
        io.BytesIO(data) if isinstance(data, bytes) else data,
        FileLayout(**layout),
        checkpoint or {},
        max_row_bytes=ROW_LIMIT,
        max_bytes=UNPACKED_LIMIT,
    )


def read_file(
    data: bytes | io.BytesIO, layout: dict[str, Any], *, block_rows: int = 1, checkpoint: Checkpoint | None = None
) -> Outcome:
    """Read a file to its end or its error. Another error than InvalidInput, or an unsafe message, fails the test."""
    found = Outcome()
    try:
        for read in walk(opened(data, layout, checkpoint), block_rows):
            found.rows.append(Row(read.input, read.line, read.defect))
            found.checkpoints.append(read.checkpoint)
            assert len(found.rows) <= ROWS_MAX
            if read.defect is not None:
                assert_safe(read.defect["reason"])
    except InvalidInput as error:
        assert_safe(error)
        found.error = str(error)
    return found


def assert_reads_consistently(data: bytes, layout: dict[str, Any], cuts: Sequence[int], resume_at: int) -> Outcome:
    """Assert that rows do not depend on blocks, chunks and interruptions. Return them."""
    whole = read_file(data, layout, block_rows=1_000)
    rows = read_file(data, layout)
    assert rows.after(0) == whole.after(0), "blocks of one row"
    if whole.rows:
        done = resume_at % len(whole.rows) + 1
        resumed = read_file(data, layout, block_rows=7, checkpoint=rows.checkpoints[done - 1])
        assert resumed.after(0) == whole.after(done), f"resumed after {done} rows"
    if layout["format"] not in ("xlsx", "parquet") and layout.get("compression") != "zip":
        _assert_equal_reads(read_file(CutFile(data, cuts), layout, block_rows=5), whole, layout)
        for size in READ_SIZES:
            with reads_of(size if len(data) < 2_000 else 64 * size):
                _assert_equal_reads(read_file(data, layout, block_rows=1_000), whole, layout)
    return whole


def _assert_equal_reads(found: Outcome, whole: Outcome, layout: dict[str, Any]) -> None:
    """Assert that two reads are equal. The rows before damaged compressed data depend on the chunks."""
    assert found.error == whole.error
    if whole.error is None or "compression" not in layout:
        assert found.rows == whole.rows
    else:
        assert all(one == other for one, other in zip(found.rows, whole.rows, strict=False))


@contextmanager
def reads_of(size: int) -> Iterator[None]:
    """Make the streams read this number of bytes at a time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (byte_streams, compression, json_reader):
            patch.setattr(module, "STREAM_READ_BYTES", size)
        patch.setattr(compression, "ZSTD_READ_BYTES", size)
        yield


def consume(data: bytes, layout: dict[str, Any]) -> None:
    """Read a file in blocks as a job does, and keep nothing."""
    try:
        with closing(opened(data, layout)) as source:
            while source.read(1_000, 64 << 10).inputs:
                pass
    except InvalidInput:
        pass


def run_or_reject(work: Callable[[], T], *errors: type[Exception]) -> T | None:
    """Return the result; None if one of the declared errors was raised, with a message that is safe to show."""
    try:
        return work()
    except errors as error:
        assert_safe(error)
        return None
