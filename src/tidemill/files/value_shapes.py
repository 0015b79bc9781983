"""Recognizes the shape of a value, such as a number or a date, to distinguish headers and footers from rows."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

TEXT, EMPTY, NUMBER = "text", "empty", "number"
TYPED_SHARE_MIN = 0.8  # of the values of a column that have its shape
NULL_WORDS = frozenset({"-", "--", "n/a", "na", "nan", "null", "none", "nil", "?", "unknown", "#n/a", ".", "k.a."})
TOTAL_WORDS = frozenset(
    [
        *("total", "totals", "grand total", "subtotal", "sub total", "sum", "summe", "gesamt", "gesamtsumme"),
        *("zwischensumme", "insgesamt", "totale", "somme", "suma", "итого", "всего", "合計", "总计", "合计"),
    ]
)
_MONTH = (
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mär|mai|okt|dez|janv|févr|avr|juin|juil|août|déc)[a-zé]*\.?"
)
_DAY = rf"\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}|\d{{1,2}}[ .-]+{_MONTH},?[ .-]+\d{{2,4}}|{_MONTH} \d{{1,2}},? \d{{4}}"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[ap]m)?"
_SHAPE = re.compile(
    r"(?P<number>[-+(]?\s?(?:[$€£¥]|(?:USD|EUR|GBP|CHF)\s)?\s?[-+]?(?:\d[\d.,'\u2019 \u00a0\u202f]*|\.\d+)"
    r"(?:[eE][-+]?\d+)?\s?(?:[$€£¥%‰]|USD|EUR|GBP|CHF)?\)?)"
    rf"|(?P<date>(?:{_DAY})(?:[T ]+{_TIME}(?: ?(?:Z|UTC|[-+]\d\d:?\d\d))?)?)"
    rf"|(?P<time>{_TIME})"
    r"|(?P<email>[^\s@]+@[^\s@]+\.[a-z]{2,})"
    r"|(?P<url>[a-z]{2,10}://\S+|www\.\S+)"
    r"|(?P<flag>true|false|yes|no|ja|nein|oui|non)"
    r"|(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?P<code>(?=[^\s]*\d[^\s]*\d)[\w.:/+#-]*)",
    re.IGNORECASE,
)
SHAPE_MAX_CHARS = 100  # longer values are text


def classify_value(value: str) -> str:
    """Return the shape of a value: "number", "date", another shape, "text" or "empty"."""
    text = value.strip()
    if not text:
        return EMPTY
    if len(text) > SHAPE_MAX_CHARS:
        return TEXT
    found = _SHAPE.fullmatch(text)
    return str(found.lastgroup) if found else TEXT


def is_null_word(value: str) -> bool:
    return value.strip().lower() in NULL_WORDS


def is_total_word(value: str) -> bool:
    return value.strip().rstrip(":").lower() in TOTAL_WORDS


def find_column_shapes(rows: Iterable[Sequence[str]], width: int) -> list[str]:
    """Return the shape of each column: that of most of its values, or "text"."""
    counts: list[Counter[str]] = [Counter() for _ in range(width)]
    for row in rows:
        for count, value in zip(counts, row, strict=False):
            shape = classify_value(value)
            if shape != EMPTY and not is_null_word(value):
                count[shape] += 1
    return [_choose_shape(count) for count in counts]


def _choose_shape(counts: Counter[str]) -> str:
    total = sum(counts.values())
    if not total:
        return EMPTY
    shape, most = counts.most_common(1)[0]
    return shape if most >= TYPED_SHARE_MIN * total else TEXT


def is_typed(shape: str) -> bool:
    return shape not in (TEXT, EMPTY)
