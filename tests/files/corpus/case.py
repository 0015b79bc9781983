"""A case of the corpus: a file, and the table that it contains or the reason why it is refused."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Case:
    """``defects`` are the lines that are reported; ``refused`` is the option that the refusal names."""

    name: str
    data: bytes
    columns: Sequence[str] = ()
    rows: Rows = ()
    defects: Sequence[int] = ()
    refused: str = ""


@dataclass(frozen=True)
class Style:
    """How a table is written."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    line_end: str = "\n"
    quotes_all: bool = False
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    encoding: str = "utf-8"
    ends_with_delimiter: bool = False
    has_header: bool = True
    header_rows: Rows = field(default_factory=list)


def write_table(columns: Sequence[str], rows: Rows, style: Style) -> bytes:
    """Write a table without the module ``csv``, which cannot write all of these styles."""
    header = list(style.header_rows) or ([columns] if style.has_header else [])
    lines = [
        style.delimiter.join(write_field(value, style) for value in row) + style.delimiter * style.ends_with_delimiter
        for row in [*header, *rows]
    ]
    text = "".join(line + style.line_end for line in [*style.before, *lines, *style.after])
    return text.encode(style.encoding)


def write_field(value: str, style: Style) -> str:
    marks = [style.quote, "\n", "\r", *({style.delimiter, style.delimiter[0]} if style.delimiter else ())]
    if not style.quotes_all and not any(mark and mark in value for mark in marks):
        return value
    if style.escape:
        inner = value.replace(style.escape, 2 * style.escape).replace(style.quote, style.escape + style.quote)
    else:
        inner = value.replace(style.quote, 2 * style.quote)
    return style.quote + inner + style.quote


def read_plain_csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))
