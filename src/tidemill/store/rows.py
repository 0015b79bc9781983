"""Rows of COPY in text form. Values are JSON already: of what COPY escapes, only the backslash can occur."""

from collections.abc import Sequence
from itertools import count, repeat

from tidemill.domain.block import Block
from tidemill.domain.decide import Verdict
from tidemill.store.json import encode

NULL = b"\\N"


def item_line(head: bytes, seq: int, value: bytes, tail: bytes) -> bytes:
    """One row of item/copy; ``head`` is the job id and a tab, ``tail`` a tab, the time and the end of line."""
    return b"%s%d\t%s\t\\N\t\\N%s" % (head, seq, _escape(value), tail)


def block_lines(head: bytes, lo: int, block: Block, tail: bytes) -> bytes:
    """The rows of item/copy for the records of a source, from item ``lo`` on."""
    values: Sequence[bytes] = block.inputs
    if _needs_escape(b"".join(values)):
        values = [_escape(value) for value in values]
    if not block.defects and block.lines is None:  # 0.7 µs a row: this is most of all rows
        return b"".join(map((head + b"%d\t%s\t\\N\t\\N" + tail).__mod__, zip(count(lo), values)))
    defects = {at: _escape(encode(defect)) for at, defect in block.defects.items()}
    places = repeat(NULL) if block.lines is None else map(b"%d".__mod__, block.lines)
    return b"".join(
        b"%s%d\t%s\t%s\t%s%s" % (head, lo + at, value, defects.get(at, NULL), place, tail)
        for at, (value, place) in enumerate(zip(values, places, strict=False))
    )


def outcome_lines(head: bytes, owner_id: int, at: bytes, verdicts: list[Verdict]) -> bytes:
    """The rows of outcome/copy; ``head`` is the job id."""
    line = b"%s\t%%d\t%d\t%%s\t%%d\t%s\t%%s\t%%s\t%%s\t%%d\n" % (head, owner_id, at)
    return b"".join(
        map(
            line.__mod__,
            zip(
                [v.seq for v in verdicts],
                [v.status.encode() for v in verdicts],
                [v.attempts for v in verdicts],
                _texts([v.result for v in verdicts]),
                _texts([v.normalized for v in verdicts]),
                _texts([v.error for v in verdicts]),
                [v.duration_ms for v in verdicts],
                strict=True,
            ),
        )
    )


def _texts(values: Sequence[bytes | None]) -> list[bytes]:
    """A column, escaped as a whole."""
    given = [value for value in values if value is not None]
    if not given:
        return [NULL] * len(values)
    together = b"\n".join(given)
    if together.count(b"\n") >= len(given) or b"\t" in together or b"\r" in together:
        return [NULL if value is None else _escape(value) for value in values]
    escaped = together.replace(b"\\", b"\\\\").split(b"\n")
    if len(given) == len(values):
        return escaped
    rest = iter(escaped)
    return [NULL if value is None else next(rest) for value in values]


def _needs_escape(data: bytes) -> bool:
    return b"\\" in data or b"\n" in data or b"\t" in data or b"\r" in data


def _escape(value: bytes) -> bytes:
    # JSON has no raw control characters, so tabs and line ends never occur; a formatted input may have them.
    if b"\\" in value:
        value = value.replace(b"\\", b"\\\\")
    if b"\n" in value or b"\t" in value or b"\r" in value:
        value = value.replace(b"\n", b" ").replace(b"\t", b" ").replace(b"\r", b" ")
    return value
