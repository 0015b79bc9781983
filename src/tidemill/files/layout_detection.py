"""Detects the layout of a file from its name, the given options and a bounded sample of its content."""

from collections.abc import Mapping
from dataclasses import replace
from email.message import Message
from functools import cached_property
from pathlib import Path, PurePath
from typing import BinaryIO

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import DetectedLayout, FileLayout, LayoutFinding
from tidemill.files.byte_streams import STREAM_READ_BYTES
from tidemill.files.compression import list_zip_files, open_decompressed, open_zip
from tidemill.files.dialect_detection import detect_dialect
from tidemill.files.formats.csv_dialect import CsvDialect
from tidemill.files.layout import FORMATS_BY_SUFFIX, RECORD_FORMATS, normalize_encoding, parse_layout_options
from tidemill.files.table_detection import detect_table
from tidemill.files.table_rows import split_sample_rows
from tidemill.files.text_encoding import decode_sample, detect_encoding, has_control_bytes

SAMPLE_HEAD_BYTES, SAMPLE_TAIL_BYTES = 64 * 1024, 16 * 1024
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
        self.is_whole = len(begin) < SAMPLE_HEAD_BYTES
        self._begin = begin
        self._file = file if compression == "none" else None

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

    def read_tail(self) -> bytes:
        """Return the last lines of a file that is not compressed; nothing if the head is the whole file."""
        if self._file is None or self.is_whole:
            return b""
        self._file.seek(max(0, self._file.seek(0, 2) - SAMPLE_TAIL_BYTES))
        return self._file.read(SAMPLE_TAIL_BYTES).partition(b"\n")[2]

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
    """Return the layout of a file; InvalidInput if it cannot be detected, or if the file can be read in two ways."""
    return inspect_layout(file, name=name, content_type=content_type, options=options).require_certain()


def inspect_layout(
    file: Path | BinaryIO, *, name: str = "", content_type: str = "", options: Mapping[str, object] | None = None
) -> DetectedLayout:
    """Return the layout of a file with the findings: the given options, and the rest detected.

    Detection reads a bounded sample of the beginning and, if the file is not compressed, of the end.

    Raises:
        InvalidInput: An option is invalid, or the format cannot be detected.
    """
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return inspect_layout(opened, name=name or file.name, content_type=content_type, options=options)
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
        return DetectedLayout(_make_binary_layout(kind, given))
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
) -> DetectedLayout:
    charset = normalize_encoding(str(about.get_param("charset") or ""))
    encoding = options.encoding or detect_encoding(sample.head, sample.non_ascii_lines, charset)
    text = decode_sample(sample.head, encoding)
    kind = kind or _detect_text_format(text)
    if kind == "json":
        kind = _detect_json_format(text)
    layout: dict[str, object] = {"format": kind, "compression": packed, "encoding": encoding}
    findings = []
    if options.encoding is None and encoding != "utf-8":
        findings.append(_describe_encoding(encoding, charset))
    if kind in ("csv", "tsv"):
        header = {"absent": False, "present": True}.get(str(about.get_param("header")))
        if header is not None and options.header is None and options.header_rows is None:
            options = replace(options, header=header)
        csv_options, found = _detect_csv(sample, text.removeprefix("\ufeff"), kind, encoding, options)
        layout |= csv_options
        findings += found
    return DetectedLayout(parse_layout_options(layout | options.to_json()), tuple(findings))


def _describe_encoding(encoding: str, charset: str | None) -> LayoutFinding:
    confidence, reason = 0.7, "The file is not UTF-8, and this encoding is the most likely one"
    if encoding == charset:
        confidence, reason = 0.9, "The content type of the file names this encoding"
    elif encoding.startswith("utf"):
        confidence, reason = 0.99, "The file has a byte order mark, or every other byte is zero"
    return LayoutFinding(option="encoding", value=encoding, confidence=confidence, reason=reason)


def _detect_csv(
    sample: FileSample, text: str, kind: str, encoding: str, options: FileLayout
) -> tuple[dict[str, object], list[LayoutFinding]]:
    """Return the dialect of a CSV text and the place of its table."""
    dialect_options, findings = detect_dialect(text, kind, options)
    dialect = CsvDialect(
        dialect_options["delimiter"], dialect_options["quote"], escape=dialect_options.get("escape", "")
    )
    line_end = dialect_options["line_end"]
    rows = split_sample_rows(text, dialect, line_end, options.skip_lines or 0)
    end, tail = text, rows
    if not sample.is_whole:
        data = sample.read_tail() if not encoding.startswith(("utf-16", "utf-32")) else b""
        end = decode_sample(data, encoding)
        tail = split_sample_rows(end, dialect, line_end)
    table = detect_table(rows, options, tail=tail, tail_lines=_count_lines(end, line_end), is_whole=sample.is_whole)
    return {**dialect_options, **table.options}, findings + table.findings


def _count_lines(text: str, line_end: str) -> int:
    if line_end == "\r":
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.count("\n") + (not text.endswith("\n"))


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
