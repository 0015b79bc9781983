"""Helpers for reader tests: every row with its line and the checkpoint after it."""

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import Checkpoint, InputDefect, InputSource, resolve_line_number
from tidemill.files.source_opener import open_block_reader

MB = 1 << 20


@dataclass(frozen=True)
class Read:
    input: bytes
    line: int
    defect: InputDefect | None
    checkpoint: Checkpoint

    @property
    def value(self) -> Any:
        return json.loads(self.input)


def opened(
    data: bytes,
    layout: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    *,
    limit: int = MB,
    max_bytes: int = 1 << 30,
) -> InputSource:
    return open_block_reader(
        io.BytesIO(data), FileLayout(**layout), checkpoint or {}, max_row_bytes=limit, max_bytes=max_bytes
    )


def walk(source: InputSource, rows: int = 1, size: int = MB) -> Iterator[Read]:
    """Yield the rows of all blocks. With several rows per block, the checkpoint is that of the block."""
    with contextlib.closing(source):
        while (block := source.read(rows, size)).inputs:
            assert len(block.inputs) <= rows
            row = block.checkpoint["row"] - len(block.inputs)
            for at, data in enumerate(block.inputs):
                line = resolve_line_number(row + at + 1, block.lines[at] if block.lines else None, source.first_line)
                defect = block.defects.get(at)
                assert defect is None or defect["line"] == line
                yield Read(data, line, defect, block.checkpoint)


def told(
    data: bytes, layout: dict[str, Any], rows: int = 1000, limit: int = MB, max_bytes: int = 1 << 30
) -> tuple[list[Any], str | None]:
    """Return the valid inputs, the reasons of invalid rows, and the error that ended the read, if any."""
    found: list[Any] = []
    try:
        for read in walk(opened(data, layout, limit=limit, max_bytes=max_bytes), rows):
            found += [read.value if read.defect is None else read.defect["reason"]]
    except InvalidInput as error:
        return found, str(error)
    return found, None
