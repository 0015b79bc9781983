"""Reads a CSV row with misplaced quotes, if only one reading of it has the right number of fields."""

from dataclasses import dataclass

SALVAGE_PIECES_MAX, SALVAGE_CHARS_MAX = 200, 16_384  # longer rows are reported
SALVAGE_STEPS_MAX = 20_000
_OUTER_QUOTE_COST = 10  # a quote at the beginning or end of a field without quotes; a quote within quotes costs 1
_WHOLE_QUOTED_COST = 30  # a field in quotes that would be read as text with quotes
_COST_MAX = _OUTER_QUOTE_COST  # rows with more misplaced quotes are reported


@dataclass(frozen=True, slots=True)
class _Reading:
    """How the pieces up to a position can be read: the cost of misplaced quotes, and whether only one way has it."""

    misplaced: int
    is_unique: bool
    begin: int
    is_quoted: bool


def salvage_fields(text: str, count: int, delimiter: str, quote: str, escape: str = "") -> list[str] | None:
    """Return the ``count`` fields of a row; None unless exactly one reading has the fewest misplaced quotes.

    A field is either text up to the next delimiter, or quoted, and then its last quote is before a delimiter.
    """
    pieces = text.split(delimiter)
    if quote not in text or not count <= len(pieces) <= SALVAGE_PIECES_MAX or len(text) > SALVAGE_CHARS_MAX:
        return None
    tables: list[dict[int, _Reading]] = [{} for _ in range(len(pieces) + 1)]
    tables[0][0] = _Reading(0, is_unique=True, begin=-1, is_quoted=False)
    steps = 0
    for at in range(len(pieces)):
        for end, misplaced, is_quoted in _list_fields(pieces, at, delimiter, quote, escape) if tables[at] else ():
            for used, before in tables[at].items():
                steps += 1
                if steps > SALVAGE_STEPS_MAX:
                    return None
                if used < count <= used + 1 + len(pieces) - end:
                    found = _Reading(before.misplaced + misplaced, before.is_unique, at, is_quoted)
                    tables[end][used + 1] = _choose_reading(tables[end].get(used + 1), found)
    best = tables[-1].get(count)
    if best is None or not best.is_unique or best.misplaced > _COST_MAX:
        return None
    return _collect_fields(pieces, tables, count, (delimiter, quote, escape))


def _choose_reading(known: _Reading | None, found: _Reading) -> _Reading:
    if known is None or found.misplaced < known.misplaced:
        return found
    if found.misplaced == known.misplaced:
        return _Reading(known.misplaced, is_unique=False, begin=known.begin, is_quoted=known.is_quoted)
    return known


def _list_fields(pieces: list[str], at: int, delimiter: str, quote: str, escape: str) -> list[tuple[int, int, bool]]:
    """Return the fields that can begin at a piece: the piece after the end, the misplaced quotes, and if quoted."""
    first = pieces[at].strip(" ")
    begins, ends = first.startswith(quote), first.endswith(quote)
    is_whole = begins and ends and len(first) > 1
    fields = [(at + 1, _WHOLE_QUOTED_COST if is_whole else _OUTER_QUOTE_COST * (begins or ends), False)]
    if begins:
        content = ""
        for end in range(at, len(pieces)):
            content = content + delimiter + pieces[end] if end > at else first
            if content.rstrip(" ").endswith(quote) and len(content) > 1:
                inner = _unescape(content.rstrip(" ")[1:-1], "", quote, escape)
                fields.append((end + 1, inner.count(quote), True))
    return fields


def _unescape(content: str, by: str, quote: str, escape: str) -> str:
    text = content.replace(escape + quote, by) if escape else content
    return text.replace(quote + quote, by)


def _collect_fields(
    pieces: list[str], tables: list[dict[int, _Reading]], count: int, marks: tuple[str, str, str]
) -> list[str]:
    delimiter, quote, escape = marks
    fields, end = [], len(pieces)
    for used in range(count, 0, -1):
        reading = tables[end][used]
        text = delimiter.join(pieces[reading.begin : end])
        fields.append(_unescape(text.strip(" ")[1:-1], quote, quote, escape) if reading.is_quoted else text)
        end = reading.begin
    return fields[::-1]
