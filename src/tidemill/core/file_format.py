"""The format, compression and columns of a file of rows."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Self

from tidemill.core.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """How to parse a file. An option that is None is not set: detection or the format's default applies."""

    format: str | None = None
    compression: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    quote: str | None = None  # empty: values are not quoted
    escape: str | None = None  # empty: quotes are doubled
    header: bool | None = None
    header_rows: int | None = None  # rows that form the names; None: one, or none without a header
    line_end: str | None = None
    skip_lines: int | None = None  # lines before the table
    table: int | None = None  # which of several tables, starting at 1; detection sets the lines
    table_lines: int | None = None  # lines of the table after skip_lines; None: to the end of the file
    footer_lines: int | None = None  # lines after the table, at the end of the file
    comment: str | None = None  # lines with this prefix are ignored
    trailing_delimiter: bool | None = None  # each line ends with an extra delimiter, after the last column
    short_rows: str | None = None  # "pad": missing fields are empty
    long_rows: str | None = None  # "cut": extra fields are ignored
    records: str | None = None  # the list of rows in a JSON object: its name, or names joined by dots
    flatten: bool | None = None  # the fields of nested JSON objects become fields of the row
    sheet: str | int | None = None  # the name of a worksheet, or its number starting at 1
    keep_empty: bool | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse a layout as a job stores it."""
        return cls(**{name: value[name] for name in LAYOUT_OPTIONS if name in value})

    def to_json(self) -> dict[str, str | int | bool]:
        """Return the options that are set, by name."""
        return {name: value for name in LAYOUT_OPTIONS if (value := getattr(self, name)) is not None}


LAYOUT_OPTIONS = tuple(each.name for each in fields(FileLayout))
CERTAIN_CONFIDENCE_MIN = 0.6  # a finding below it admits a second reading of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFinding:
    """What detection found: the option, its value, how certain it is from 0 to 1, and why.

    The option "columns" lists derived column names, which no option sets.
    """

    option: str
    value: str | int | bool
    confidence: float
    reason: str

    @property
    def is_certain(self) -> bool:
        return self.confidence >= CERTAIN_CONFIDENCE_MIN

    def to_json(self) -> dict[str, str | int | bool | float]:
        return {name: getattr(self, name) for name in ("option", "value", "confidence", "reason")}


@dataclass(frozen=True, slots=True)
class DetectedLayout:
    """A layout, and the findings of its detection. Options that the caller set are not findings."""

    layout: FileLayout
    findings: tuple[LayoutFinding, ...] = ()

    def require_certain(self) -> FileLayout:
        """Return the layout; InvalidInput names the options to set if the file can be read in two ways."""
        if doubts := list_layout_doubts(self.findings):
            raise InvalidInput(f"The layout of the file is not certain. {' '.join(doubts)}")
        return self.layout


def list_layout_doubts(findings: Iterable[LayoutFinding]) -> list[str]:
    """Return a sentence for each option that the caller should set, because the file can be read in two ways."""
    doubts = {each.reason: each for each in findings if not each.is_certain}
    return [f'{reason}. Set the option "{each.option}".' for reason, each in doubts.items()]


ColumnType = Literal[
    "text", "integer", "number", "boolean", "date", "time", "timestamp", "uuid", "json", "bytes", "array", "other"
]


_TEXT_LIKE_SQL_TYPES = ("citext", "name", '"char"')


def is_text_type(type_: ColumnType, sql_type: str) -> bool:
    """Return whether values of the type are plain text, including the text-like types of PostgreSQL."""
    return type_ == "text" or sql_type.rpartition(".")[2] in _TEXT_LIKE_SQL_TYPES


CopyFormat = Literal["csv", "ndjson"]
"""The format in which COPY delivers rows to an encoder; CSV starts with a header."""


class FileFormat(StrEnum):
    CSV = "csv"
    NDJSON = "ndjson"
    JSON = "json"
    XLSX = "xlsx"
    PARQUET = "parquet"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


FORMAT_CONTENT_TYPES = {
    FileFormat.CSV: "text/csv; charset=utf-8; header=present",
    FileFormat.NDJSON: "application/x-ndjson",
    FileFormat.JSON: "application/json",
    FileFormat.XLSX: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    FileFormat.PARQUET: "application/vnd.apache.parquet",
}
COMPRESSION_CONTENT_TYPES = {Compression.GZIP: "application/gzip", Compression.ZSTD: "application/zstd"}
COMPRESSION_SUFFIXES = {Compression.NONE: "", Compression.GZIP: ".gz", Compression.ZSTD: ".zst"}
SELF_COMPRESSED_FORMATS = (FileFormat.XLSX, FileFormat.PARQUET)  # formats with built-in compression


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of an output file. ``type`` is the type of the resource's field, or text for rows without a schema."""

    name: str
    type: ColumnType = "text"
    sql_type: str = "text"


@dataclass(frozen=True, slots=True)
class OutputFileSpec:
    format: FileFormat
    columns: tuple[OutputColumn, ...]
    compression: Compression = Compression.NONE
    spreadsheet_safe: bool = False

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raise InvalidInput if the options cannot be combined."""
        if self.compression is not Compression.NONE and self.format in SELF_COMPRESSED_FORMATS:
            raise InvalidInput(
                f'Format "{self.format}" has built-in compression: omit compression "{self.compression}"'
            )
        if self.spreadsheet_safe and self.format not in (FileFormat.CSV, FileFormat.XLSX):
            raise InvalidInput(f'spreadsheet_safe requires format csv or xlsx, not "{self.format}"')

    @property
    def postgres_copy_format(self) -> CopyFormat:
        return "ndjson" if self.format in (FileFormat.NDJSON, FileFormat.JSON) else "csv"

    @property
    def is_raw_copy(self) -> bool:
        """Whether the file is the unchanged output of COPY."""
        return self.compression is Compression.NONE and self.format in (FileFormat.CSV, FileFormat.NDJSON)

    @property
    def suffix(self) -> str:
        return f".{self.format}{COMPRESSION_SUFFIXES[self.compression]}"

    @property
    def content_type(self) -> str:
        return COMPRESSION_CONTENT_TYPES.get(self.compression, FORMAT_CONTENT_TYPES[self.format])


def parse_result_format_from_suffix(path: Path) -> str:
    """Return the format of a result file, from the suffix of its name."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FileFormat.__members__.values():
        formats = ", ".join(f".{name}" for name in FileFormat)
        raise InvalidInput(f'Unsupported result file "{path.name}": the name must end in {formats}')
    return suffix


_FORMULA_START: Final = r"[=+@\t\r\n\uff1d\uff0b\uff20\uff0d-]"  # the last four are = + @ - in full width
FORMULA_PATTERN: Final = rf"^'*{_FORMULA_START}"  # the same in Python and in PostgreSQL
_match_formula = re.compile(FORMULA_PATTERN).match
_match_escaped_formula = re.compile(rf"'+{_FORMULA_START}").match


def escape_formula(text: str) -> str:
    return "'" + text if _match_formula(text) else text


def unescape_formula(text: str) -> str:
    return text[1:] if _match_escaped_formula(text) else text
