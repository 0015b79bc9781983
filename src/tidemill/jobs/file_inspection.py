"""Inspects a stored file before a job is made of it: its layout, its columns and its first records."""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import InputDefect, SourceReference
from tidemill.files.layout import RECORD_FORMATS
from tidemill.files.layout_detection import detect_layout
from tidemill.runtime import Runtime
from tidemill.store.jsonb import decode_input_or_text

SAMPLE_ROWS, SAMPLE_MAX_BYTES = 100, 1 << 20
IMAGES_REFUSED_MESSAGE = "images cannot be imported into a table"


@dataclass(frozen=True, slots=True)
class FileInspection:
    """What a file contains, as far as its first records show it."""

    layout: FileLayout
    columns: tuple[str, ...]
    is_named_by_rows: bool
    first_line: int
    records: list[Any]
    defects: dict[int, InputDefect]
    lines: list[int] | None

    @property
    def known_columns(self) -> tuple[str, ...]:
        """The columns that every row has; none where each row names its own, because later rows may name others."""
        return () if self.is_named_by_rows else self.columns


async def inspect_file(
    runtime: Runtime,
    blob_id: str,
    *,
    name: str = "",
    content_type: str = "",
    layout_options: Mapping[str, object],
    rows: int = SAMPLE_ROWS,
) -> FileInspection:
    """Detect the layout that ``layout_options`` leave open, and read the first records.

    Raises:
        InvalidInput: The file cannot be read as rows.
    """
    return await asyncio.to_thread(_inspect_file, runtime, blob_id, name, content_type, layout_options, rows)


def _inspect_file(
    runtime: Runtime, blob_id: str, name: str, content_type: str, layout_options: Mapping[str, object], rows: int
) -> FileInspection:
    check_record_format(layout_options)
    with runtime.blobs.open(blob_id) as file:
        layout = detect_layout(file, name=name, content_type=content_type, options=layout_options)
    if layout.format == "images":
        raise InvalidInput(IMAGES_REFUSED_MESSAGE)
    reference = SourceReference(blob=blob_id, format=layout.format, layout=layout)
    with closing(runtime.source_opener(reference, {}, lambda: True)) as source:
        block = source.read(rows, SAMPLE_MAX_BYTES)
        records = [decode_input_or_text(text.decode(), exact=True) for text in block.inputs]
        columns = source.columns
        named = _list_field_names(records) if columns is None else tuple(columns)
        return FileInspection(layout, named, columns is None, source.first_line, records, block.defects, block.lines)


def check_record_format(layout_options: Mapping[str, object]) -> None:
    """InvalidInput if the options name a format whose files do not consist of rows."""
    format_ = layout_options.get("format")
    if format_ == "images":
        raise InvalidInput(IMAGES_REFUSED_MESSAGE)
    if format_ is not None and format_ not in RECORD_FORMATS:
        raise InvalidInput(f"unknown format {format_!r}; known are {', '.join(RECORD_FORMATS)}")


def _list_field_names(records: list[Any]) -> tuple[str, ...]:
    """The fields that records name, in the order of their first occurrence."""
    names: dict[str, None] = {}
    for record in records:
        if isinstance(record, dict):
            names |= dict.fromkeys(record)
    return tuple(names)
