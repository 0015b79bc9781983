"""Inspects a stored file before it becomes a job: its layout, columns and first records."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import DetectedLayout, FileLayout, LayoutFinding
from tidemill.core.input_source import InputDefect, InputSource
from tidemill.files.file_sample import SAMPLE_ROWS_MAX, TEXT_SAMPLE_FORMATS
from tidemill.files.formats.column_names import check_column_count
from tidemill.files.layout import RECORD_FORMATS, parse_layout_options
from tidemill.jobs.work_gates import make_inspection_gate
from tidemill.runtime import Runtime
from tidemill.store.jsonb import decode_input_or_text

__all__ = ["parse_layout_options"]  # for routes, which do not import tidemill.files
SAMPLE_ROWS, SAMPLE_MAX_BYTES = 100, 1 << 20
IMAGES_REFUSED_MESSAGE = "Images cannot be imported into a table"


@dataclass(frozen=True, slots=True)
class FileInspection:
    """The layout with the findings of its detection, and the columns and first records of a file."""

    layout: FileLayout
    findings: tuple[LayoutFinding, ...]
    columns: tuple[str, ...]
    is_named_by_rows: bool
    first_line: int
    records: list[Any]
    defects: dict[int, InputDefect]
    lines: list[int] | None
    sample: list[Any] = field(default_factory=list)  # rows of the whole file, if requested

    @property
    def known_columns(self) -> tuple[str, ...]:
        """The columns of all rows; empty if each row names its own fields, because later rows may have others."""
        return () if self.is_named_by_rows else self.columns


async def inspect_file(
    runtime: Runtime,
    blob_id: str,
    *,
    name: str = "",
    content_type: str = "",
    layout_options: Mapping[str, object],
    rows: int = SAMPLE_ROWS,
    owner_id: int,
    allow_doubts: bool = False,
    with_sample: bool = False,
) -> FileInspection:
    """Detect the layout, except for options in ``layout_options``, and read the first records.

    Raises:
        InvalidInput: The file cannot be read as rows; or it can be read in two ways, unless ``allow_doubts`` is set.
        TooManyRequests, Busy: Other files are being inspected.
    """
    gate = runtime.get(make_inspection_gate)
    inspection = await gate.run(
        owner_id, _inspect_file_sync, runtime, blob_id, name, content_type, layout_options, rows, with_sample
    )
    if not allow_doubts:
        DetectedLayout(inspection.layout, inspection.findings).require_certain()
    return inspection


def _inspect_file_sync(
    runtime: Runtime,
    blob_id: str,
    name: str,
    content_type: str,
    layout_options: Mapping[str, object],
    rows: int,
    with_sample: bool,
) -> FileInspection:
    check_record_format(layout_options)
    reader = runtime.file_reader
    with closing(reader.open_detected(blob_id, name=name, content_type=content_type, options=layout_options)) as source:
        layout = source.layout
        if layout.format == "images":
            raise InvalidInput(IMAGES_REFUSED_MESSAGE)
        block = source.read(rows, SAMPLE_MAX_BYTES)
        records = [decode_input_or_text(text.decode(), exact=True) for text in block.inputs]
        columns = source.columns
        named = _list_field_names(records) if columns is None else tuple(columns)
        check_column_count(len(named))
        sample = _read_sample(source, records) if with_sample else []
        return FileInspection(
            layout,
            source.findings,
            named,
            columns is None,
            source.first_line,
            records,
            block.defects,
            block.lines,
            sample,
        )


def _read_sample(source: InputSource, first: list[Any]) -> list[Any]:
    """Return rows of the whole file. A format without access to all parts continues after the first rows."""
    if source.layout.format in TEXT_SAMPLE_FORMATS:
        texts = source.read_sample()
        return [decode_input_or_text(text.decode(), exact=True) for text in texts] or first
    further = source.read(SAMPLE_ROWS_MAX, SAMPLE_MAX_BYTES).inputs
    return first + [decode_input_or_text(text.decode(), exact=True) for text in further]


def check_record_format(layout_options: Mapping[str, object]) -> None:
    """Raise InvalidInput if the options set a format whose files have no rows."""
    format_ = layout_options.get("format")
    if format_ == "images":
        raise InvalidInput(IMAGES_REFUSED_MESSAGE)
    if format_ is not None and format_ not in RECORD_FORMATS:
        raise InvalidInput(f'Unknown format "{format_}". Known formats: {", ".join(RECORD_FORMATS)}.')


def _list_field_names(records: list[Any]) -> tuple[str, ...]:
    """Return the field names of records, in order of first occurrence."""
    names: dict[str, None] = {}
    for record in records:
        if isinstance(record, dict):
            names |= dict.fromkeys(record)
    return tuple(names)
