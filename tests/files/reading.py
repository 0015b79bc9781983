"""Sources in tests: every record with its line and the checkpoint behind it."""

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
    """Block after block to the end. With more than a row at a time, the checkpoint is the block's."""
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
    """The good inputs, the reasons of the bad ones, and what stopped the reading in the end."""
    found: list[Any] = []
    try:
        for read in walk(opened(data, layout, limit=limit, max_bytes=max_bytes), rows):
            found += [read.value if read.defect is None else read.defect["reason"]]
    except InvalidInput as error:
        return found, str(error)
    return found, None
