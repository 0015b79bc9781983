"""Rows of COPY in text form. Values are JSON already: of what COPY escapes, only the backslash can occur."""

from tidemill.domain.decide import Verdict

NULL = b"\\N"


def item_line(head: bytes, seq: int, value: bytes, defect: bytes | None, tail: bytes) -> bytes:
    """One row of item/copy; ``head`` is the job id and a tab, ``tail`` a tab, the time and the end of line."""
    return b"%s%d\t%s\t%s%s" % (head, seq, _escape(value), NULL if defect is None else _escape(defect), tail)


def outcome_lines(head: bytes, owner_id: int, at: bytes, verdicts: list[Verdict]) -> bytes:
    """The rows of outcome/copy; ``head`` is the job id."""
    lines = []
    for v in verdicts:
        result = NULL if v.result is None else _escape(v.result)
        normalized = NULL if v.normalized is None else _escape(v.normalized)
        error = NULL if v.error is None else _escape(v.error)
        lines.append(
            b"%s\t%d\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%d\n"
            % (
                head,
                v.seq,
                owner_id,
                v.status.encode(),
                v.attempts,
                at,
                result,
                normalized,
                error,
                v.duration_ms,
            )
        )
    return b"".join(lines)


def _escape(value: bytes) -> bytes:
    # JSON has no raw control characters, so tabs and line ends never occur; a formatted input may have them.
    if b"\\" in value:
        value = value.replace(b"\\", b"\\\\")
    if b"\n" in value or b"\t" in value or b"\r" in value:
        value = value.replace(b"\n", b" ").replace(b"\t", b" ").replace(b"\r", b" ")
    return value
