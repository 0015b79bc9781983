"""What a file is: from its name, what was said of it, and a bounded look at its beginning."""

import csv
from email.message import Message
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from tidemill.connectors.csv_rows import Dialect
from tidemill.connectors.encoding import find_encoding, has_controls, utf8_text
from tidemill.connectors.layout import FORMATS, RECORD_FORMATS, checked, encoding_of
from tidemill.connectors.sample import Sample
from tidemill.connectors.zips import members, open_zip
from tidemill.domain.errors import InvalidInput

MEDIA_FORMATS = {
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/json": "json",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.apache.parquet": "parquet",
}
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
PACKED = (".gz", ".zst", ".zstd")
_CALLED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".zip": "zip"}
_LOOKED_AT = 1000
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}
_DELIMITERS = (",", ";", "\t", "|")
_OLD_EXCEL = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def describe(
    file: Path | BinaryIO, *, name: str = "", content_type: str = "", given: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The layout of a file. What is given holds; the rest is found out. InvalidInput if it cannot be told."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return describe(opened, name=name or file.name, content_type=content_type, given=given)
    asked = checked({key: value for key, value in (given or {}).items() if value is not None})
    about = Message()
    about["content-type"] = content_type or "application/octet-stream"
    kind = asked.get("format")
    packed = asked.get("compression") or _compression(file)
    if packed == "zip" and kind in (None, "xlsx", "images") and "compression" not in asked:
        kind = _kind_of_zip(file, kind)
    if kind is None:
        kind = _kind_of_file(file) or (None if packed == "zip" else _said(name, about))
    if kind in ("xlsx", "parquet", "images"):
        return _binary(kind, asked)
    sample = Sample(file, packed)
    if packed == "none" and "compression" not in asked:
        _insist_on_text(name, sample.head[:_LOOKED_AT])
    return _text_layout(sample, kind or _said(name, about), asked, packed, about)


def _compression(file: BinaryIO) -> str:
    file.seek(0)
    head = file.read(4)
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "none")


def _insist_on_text(name: str, head: bytes) -> None:
    """A text that is called packed was unpacked on its way, as browsers do; of what is neither, the name is told."""
    ending = PurePath(name.lower()).suffix
    if ending in _CALLED and has_controls(head):
        raise InvalidInput(f"the file is called {ending}, but is not {_CALLED[ending]}")


def _kind_of_zip(file: BinaryIO, kind: str | None) -> str | None:
    """A workbook, images, or None: a file that was packed."""
    with open_zip(file) as archive:
        names = [member.filename for member in members(archive)]
    if kind is not None or "xl/workbook.xml" in names or "[Content_Types].xml" in names:
        return kind or "xlsx"
    if names and all(each.lower().endswith(IMAGES) for each in names):
        return "images"
    if len(names) != 1:
        raise InvalidInput(f"a zip file holds one file of records, or images; this one holds {len(names)} files")
    return None


def _kind_of_file(file: BinaryIO) -> str | None:
    file.seek(0)
    head = file.read(8)
    if head.startswith(_OLD_EXCEL):
        raise InvalidInput("this is a workbook of the old kind (.xls): save it as .xlsx")
    return "parquet" if head.startswith(b"PAR1") else None


def _said(name: str, about: Message) -> str | None:
    """The format that the name or the content type says."""
    path = PurePath(name.lower())
    if path.suffix in (*PACKED, ".zip"):
        path = PurePath(path.stem)
    suffix = FORMATS.get(path.suffix)
    return (None if suffix == "images" else suffix) or MEDIA_FORMATS.get(about.get_content_type())


def _binary(kind: str, asked: dict[str, Any]) -> dict[str, Any]:
    return checked({"format": kind} | {key: asked[key] for key in asked if key != "compression"})


def _text_layout(
    sample: Sample, kind: str | None, asked: dict[str, Any], packed: str, about: Message
) -> dict[str, Any]:
    said = encoding_of(str(about.get_param("charset") or ""))
    encoding = asked.get("encoding") or find_encoding(sample.head, sample.far, said)
    text = utf8_text(sample.head, encoding)
    kind = kind or _kind_of_text(text)
    if kind == "json":
        kind = _kind_of_json(text)
    layout: dict[str, Any] = {"format": kind, "compression": packed, "encoding": encoding}
    if kind in ("csv", "tsv"):
        layout |= _dialect(text, kind, asked)
        if about.get_param("header") == "absent":
            layout["header"] = False
    return checked(layout | asked)


def _kind_of_json(text: str) -> str:
    """Many a file of lines is called .json."""
    return "ndjson" if text.lstrip("\ufeff \t\r\n").startswith("{") else "json"


def _kind_of_text(text: str) -> str:
    start = text.lstrip("\ufeff \t\r\n")
    if "\x00" in text[:_LOOKED_AT]:
        raise InvalidInput(f"the format of the file cannot be told: say one of {', '.join(RECORD_FORMATS)}")
    if start.startswith("["):
        first = start.split("\n", 1)[0].rstrip()
        rest = start[len(first) :].strip()
        return "ndjson" if first.endswith("]") and rest.startswith("[") else "json"
    return "ndjson" if start.startswith("{") else "csv"


def _dialect(text: str, kind: str, asked: dict[str, Any]) -> dict[str, Any]:
    line_end = "\r\n" if "\r\n" in text else "\r" if "\r" in text and "\n" not in text else "\n"
    quote = asked.get("quote", '"')
    delimiter = "\t" if kind == "tsv" else _delimiter(text, quote)
    return {"delimiter": delimiter, "quote": quote, "header": True, "line_end": line_end}


def _delimiter(text: str, quote: str) -> str:
    """The one that cuts most records into the same number of fields; of several, the one that makes most."""
    scores = {each: _score(text, each, quote) for each in _DELIMITERS}
    best = max(_DELIMITERS, key=lambda each: scores[each])
    return best if scores[best][1] > 1 else ","


def _score(text: str, delimiter: str, quote: str) -> tuple[float, int]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    reader = Dialect(delimiter, quote).read((f"{line}\n" for line in lines), strict=False)
    try:
        counts = [len(fields) for fields in reader if any(fields)]
    except csv.Error:
        return (0, 0)
    if not counts or counts[0] < 2:  # noqa: PLR2004  the header tells
        return (0, 0)
    return (round(counts.count(counts[0]) / len(counts), 1), counts[0])
