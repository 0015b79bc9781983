"""Detects the layout of a file from its name, the given options and a bounded sample of its content."""

import csv
from collections.abc import Mapping
from dataclasses import replace
from email.message import Message
from functools import cached_property
from pathlib import Path, PurePath
from typing import BinaryIO

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.files.byte_streams import STREAM_READ_BYTES
from tidemill.files.compression import list_zip_files, open_decompressed, open_zip
from tidemill.files.formats.csv_reader import CsvDialect
from tidemill.files.layout import FORMATS_BY_SUFFIX, RECORD_FORMATS, normalize_encoding, parse_layout_options
from tidemill.files.text_encoding import decode_sample, detect_encoding, has_control_bytes

SAMPLE_HEAD_BYTES = 64 * 1024
ENCODING_SCAN_MAX_BYTES = 8 << 20  # how much is searched for non-ASCII bytes
SAMPLE_DECOMPRESSED_MAX_BYTES = 1 << 30


class FileSample:
    """A sample of a file: complete lines at the beginning (``head``), and lines that show its encoding."""

    def __init__(self, file: BinaryIO, compression: str) -> None:
        self._stream = open_decompressed(file, compression, SAMPLE_DECOMPRESSED_MAX_BYTES)
        self._stream.seek(0)
        begin = self._read_up_to(SAMPLE_HEAD_BYTES)
        whole, end, _ = begin.rpartition(b"\n") if len(begin) == SAMPLE_HEAD_BYTES else (begin, b"", b"")
        self.head = whole + end or begin
        self._begin = begin

    @cached_property
    def non_ascii_lines(self) -> list[bytes]:
        """The complete lines with non-ASCII bytes in the first megabytes."""
        kept: list[bytes] = []
        piece, tail, seen, size = self._begin, b"", 0, 0
        while piece and seen < ENCODING_SCAN_MAX_BYTES and size < SAMPLE_HEAD_BYTES:
            *lines, tail = (tail + piece).split(b"\n")
            kept += [line for line in lines if not line.isascii()]
            seen, size = seen + len(piece), sum(map(len, kept))
            piece = self._read_up_to(STREAM_READ_BYTES)
        if not piece and not tail.isascii():
            kept.append(tail)
        return kept

    def _read_up_to(self, size: int) -> bytes:
        """Read up to ``size`` bytes. Ignore damaged data: the reader of the file reports it."""
        data = b""
        try:
            while len(data) < size and (piece := self._stream.read(size - len(data))):
                data += piece
        except InvalidInput:
            if not data:
                return b""
        return data


FORMATS_BY_MEDIA_TYPE = {
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/json": "json",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.apache.parquet": "parquet",
}
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
COMPRESSED_SUFFIXES = (".gz", ".zst", ".zstd")
_COMPRESSION_BY_SUFFIX = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".zip": "zip"}
_TEXT_CHECK_BYTES = 1000
_COMPRESSION_BY_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}
_CANDIDATE_DELIMITERS = (",", ";", "\t", "|")
_XLS_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def detect_layout(
    file: Path | BinaryIO, *, name: str = "", content_type: str = "", options: Mapping[str, object] | None = None
) -> FileLayout:
    """Return the layout of a file: the given options, and the rest detected. InvalidInput if detection fails."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return detect_layout(opened, name=name or file.name, content_type=content_type, options=options)
    given = parse_layout_options({key: value for key, value in (options or {}).items() if value is not None})
    about = Message()
    about["content-type"] = content_type or "application/octet-stream"
    kind = given.format
    compression = given.compression or _detect_compression(file)
    if compression == "zip" and kind in (None, "xlsx", "images") and given.compression is None:
        kind = _detect_zip_format(file, kind)
    if kind is None:
        kind = _detect_parquet_or_reject_xls(file) or (
            None if compression == "zip" else _get_format_from_name_or_type(name, about)
        )
    if kind in ("xlsx", "parquet", "images"):
        return _make_binary_layout(kind, given)
    sample = FileSample(file, compression)
    if compression == "none" and given.compression is None:
        _refuse_mislabelled_compression(name, sample.head[:_TEXT_CHECK_BYTES])
    return _detect_text_layout(sample, kind or _get_format_from_name_or_type(name, about), given, compression, about)


def _detect_compression(file: BinaryIO) -> str:
    file.seek(0)
    head = file.read(4)
    return next((kind for magic, kind in _COMPRESSION_BY_MAGIC.items() if head.startswith(magic)), "none")


def _refuse_mislabelled_compression(name: str, head: bytes) -> None:
    """Raise InvalidInput if the name says compressed but the content is neither compressed nor text.

    Text is accepted: a browser may have decompressed the file during its download.
    """
    ending = PurePath(name.lower()).suffix
    if ending in _COMPRESSION_BY_SUFFIX and has_control_bytes(head):
        raise InvalidInput(
            f'The file name ends with "{ending}", but the file is not {_COMPRESSION_BY_SUFFIX[ending]}-compressed'
        )


def _detect_zip_format(file: BinaryIO, kind: str | None) -> str | None:
    """Return the format of a zip: a workbook, images, or None for a compressed file of rows."""
    with open_zip(file) as archive:
        names = [member.filename for member in list_zip_files(archive)]
    if kind is not None or "xl/workbook.xml" in names or "[Content_Types].xml" in names:
        return kind or "xlsx"
    if names and all(each.lower().endswith(IMAGE_SUFFIXES) for each in names):
        return "images"
    if len(names) != 1:
        raise InvalidInput(
            f"The zip file contains {len(names)} files. It must contain one file of rows, or only images."
        )
    return None


def _detect_parquet_or_reject_xls(file: BinaryIO) -> str | None:
    file.seek(0)
    head = file.read(8)
    if head.startswith(_XLS_MAGIC):
        raise InvalidInput("Legacy .xls workbooks are not supported. Save the file as .xlsx.")
    return "parquet" if head.startswith(b"PAR1") else None


def _get_format_from_name_or_type(name: str, about: Message) -> str | None:
    """Return the format from the file name or the content type; None if neither is known."""
    path = PurePath(name.lower())
    if path.suffix in (*COMPRESSED_SUFFIXES, ".zip"):
        path = PurePath(path.stem)
    suffix = FORMATS_BY_SUFFIX.get(path.suffix)
    return (None if suffix == "images" else suffix) or FORMATS_BY_MEDIA_TYPE.get(about.get_content_type())


def _make_binary_layout(kind: str, options: FileLayout) -> FileLayout:
    return parse_layout_options(replace(options, format=kind, compression=None).to_json())


def _detect_text_layout(
    sample: FileSample, kind: str | None, options: FileLayout, packed: str, about: Message
) -> FileLayout:
    charset = normalize_encoding(str(about.get_param("charset") or ""))
    encoding = options.encoding or detect_encoding(sample.head, sample.non_ascii_lines, charset)
    text = decode_sample(sample.head, encoding)
    kind = kind or _detect_text_format(text)
    if kind == "json":
        kind = _detect_json_format(text)
    layout: dict[str, object] = {"format": kind, "compression": packed, "encoding": encoding}
    if kind in ("csv", "tsv"):
        layout |= _detect_dialect(text, kind, options)
        if about.get_param("header") == "absent":
            layout["header"] = False
    return parse_layout_options(layout | options.to_json())


def _detect_json_format(text: str) -> str:
    """Distinguish an array from NDJSON: many NDJSON files are named .json."""
    return "ndjson" if text.lstrip("\ufeff \t\r\n").startswith("{") else "json"


def _detect_text_format(text: str) -> str:
    start = text.lstrip("\ufeff \t\r\n")
    if "\x00" in text[:_TEXT_CHECK_BYTES]:
        raise InvalidInput(f"Cannot detect the format of the file. Set format to one of {', '.join(RECORD_FORMATS)}.")
    if start.startswith("["):
        first = start.split("\n", 1)[0].rstrip()
        rest = start[len(first) :].strip()
        return "ndjson" if first.endswith("]") and rest.startswith("[") else "json"
    return "ndjson" if start.startswith("{") else "csv"


def _detect_dialect(text: str, kind: str, options: FileLayout) -> dict[str, object]:
    line_end = "\r\n" if "\r\n" in text else "\r" if "\r" in text and "\n" not in text else "\n"
    quote = '"' if options.quote is None else options.quote
    delimiter = "\t" if kind == "tsv" else _detect_delimiter(text, quote)
    return {"delimiter": delimiter, "quote": quote, "header": True, "line_end": line_end}


def _detect_delimiter(text: str, quote: str) -> str:
    """Return the delimiter that gives most rows the same number of fields; in a tie, the most fields."""
    scores = {each: _score_delimiter(text, each, quote) for each in _CANDIDATE_DELIMITERS}
    best = max(_CANDIDATE_DELIMITERS, key=lambda each: scores[each])
    return best if scores[best][1] > 1 else ","


def _score_delimiter(text: str, delimiter: str, quote: str) -> tuple[float, int]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    reader = CsvDialect(delimiter, quote).read_rows((f"{line}\n" for line in lines), strict=False)
    try:
        counts = [len(fields) for fields in reader if any(fields)]
    except csv.Error:
        return (0, 0)
    if not counts or counts[0] < 2:  # noqa: PLR2004  a header with one column
        return (0, 0)
    return (round(counts.count(counts[0]) / len(counts), 1), counts[0])
