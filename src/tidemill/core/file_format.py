"""The form of a file of rows: its format, its compression, and what stands in its columns."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from tidemill.core.column_type import ColumnType
from tidemill.core.errors import InvalidInput

CopyFormat = Literal["csv", "ndjson"]
"""What an encoder is fed with: bytes as COPY delivers them, a header first if it is CSV."""


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
SELF_COMPRESSED_FORMATS = (FileFormat.XLSX, FileFormat.PARQUET)  # compressed by themselves


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """``type`` is that of a resource's field; of rows that say nothing about themselves it is text."""

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
        """InvalidInput says what does not go together."""
        if self.compression is not Compression.NONE and self.format in SELF_COMPRESSED_FORMATS:
            raise InvalidInput(f"{self.format} is compressed by itself: ask for it without {self.compression}")
        if self.spreadsheet_safe and self.format not in (FileFormat.CSV, FileFormat.XLSX):
            raise InvalidInput(f"spreadsheet_safe is for csv and xlsx, not for {self.format}")

    @property
    def copy_format(self) -> CopyFormat:
        return "ndjson" if self.format in (FileFormat.NDJSON, FileFormat.JSON) else "csv"

    @property
    def is_raw_copy(self) -> bool:
        """The file is its feed, byte by byte."""
        return self.compression is Compression.NONE and self.format in (FileFormat.CSV, FileFormat.NDJSON)

    @property
    def suffix(self) -> str:
        return f".{self.format}{COMPRESSION_SUFFIXES[self.compression]}"

    @property
    def content_type(self) -> str:
        return COMPRESSION_CONTENT_TYPES.get(self.compression, FORMAT_CONTENT_TYPES[self.format])


class ResultFileFormat(StrEnum):
    CSV = "csv"
    XLSX = "xlsx"
    NDJSON = "ndjson"


def parse_result_format(path: Path) -> str:
    """The format of a result file, by the suffix of its name."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in ResultFileFormat.__members__.values():
        formats = ", ".join(f".{name}" for name in ResultFileFormat)
        raise InvalidInput(f"{path.name}: results are written as {formats}")
    return suffix
