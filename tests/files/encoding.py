"""Helpers for encoder tests: rows as COPY writes them, and files read back by Tidemill's readers."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from files.reading import told
from tidemill.core.file_format import Compression, FileFormat, OutputColumn, OutputFileSpec
from tidemill.files.writers import open_copy_encoder
from tidemill.files.writers.byte_output import CopyEncoder

TEXTS = (
    'she said "hi", twice: ""',
    "one\ntwo\r\nthree\rfour",
    "a,b;c\td|e",
    "  both sides  ",
    "=1+1",
    "007",
    "12345678901234567890",
    "true",
    "\\.",
    '"',
    '",\n"',
    "žluťoučký 日本語 \u202e\ufeff\u2028\x85",
    "👩‍👩‍👧",
    "bell\x07 escape\x1b end\x1f",
    "_x0041_",
    "<b>&amp;</b> ]]>",
)


class Pieces(bytearray):
    """A write-only output."""

    def write(self, piece: bytes, /) -> int:
        self.extend(piece)
        return len(piece)

    def flush(self) -> None: ...


def copy_csv(header: Sequence[str], rows: Iterable[Sequence[str | None]]) -> bytes:
    """Return the output of COPY … (FORMAT csv, HEADER)."""
    lines = [header, *rows]
    return "".join(",".join(map(_field, line)) + "\n" for line in lines).encode()


def copy_ndjson(rows: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def form(
    format_: str, *columns: tuple[str, str] | tuple[str, str, str], compression: str = "none", **more: Any
) -> OutputFileSpec:
    made = tuple(OutputColumn(*column) for column in columns)
    return OutputFileSpec(FileFormat(format_), made, Compression(compression), **more)


def encoded(form: OutputFileSpec, fed: bytes, size: int = 7) -> bytes:
    return bytes(made(form, fed, size)[0])


def made(form: OutputFileSpec, fed: bytes, size: int = 1 << 16) -> tuple[Pieces, CopyEncoder]:
    output = Pieces()
    encoder = open_copy_encoder(form, output)
    for chunk in cut(fed, size):
        encoder.write(chunk)
    encoder.close()
    return output, encoder


def cut(fed: bytes, size: int) -> Iterator[bytes]:
    return (fed[at : at + size] for at in range(0, len(fed), size))


def read(form: OutputFileSpec, data: bytes) -> list[Any]:
    """Read a file with Tidemill's readers."""
    layout = {"format": str(form.format), "compression": str(form.compression)}
    found, error = told(data, layout)
    assert error is None
    return found


def _field(text: str | None) -> str:
    if text is None:
        return ""
    odd = text in ("", "\\.") or any(mark in text for mark in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if odd else text
