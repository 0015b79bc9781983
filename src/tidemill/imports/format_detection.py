"""Detects the formats of values from a sample of the file, and the columns whose values can be read in two ways."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from tidemill.core.errors import AmbiguousFormats
from tidemill.core.file_format import unescape_formula
from tidemill.tables.resource import Field
from tidemill.tables.values.type_readers import TYPE_READERS
from tidemill.tables.values.value_formats import (
    KINDS_BY_TYPE,
    NULLS_SUFFIX,
    VALUE_FORMATS,
    get_value_format,
    is_missing_word,
)

SAMPLE_TEXTS_MAX = 1_000  # different texts of a column that are read in every format; of a doubtful one, all are
PROBE_TEXTS_MAX = 40  # texts that show which formats are possible at all
SAMPLE_TEXT_MAX_CHARS = 200  # a longer text shows no format
EXAMPLES_MAX = 3
PLAIN_SHARE_MIN = 0.8  # of the different values; then the others are invalid unless they prove one format
CERTAIN, AMBIGUOUS_MAX = 0.99, 0.59  # below 0.6, a finding admits a second reading
DAYS_VARY_MIN, YEARS_VARY_MAX = 13, 3  # different values of a day and of a year, if the two can be told apart by them
MONTH_EDGE_DAYS = frozenset({"01", "1", "28", "29", "30", "31"})
SHORT_YEAR_PIVOT = 30  # the other century of two-digit years: 30 is 1930
UNDECIDED_FORMAT = NULLS_SUFFIX[1:]  # plain notation with missing values: it does not decide the decimal mark
_SHORT_YEAR = re.compile(r"(?<![A-Z])YY(?!Y)")

Example = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """A format of a column that fits its values, how likely it is from 0 to 1, and values before and after it."""

    format: str
    confidence: float
    examples: tuple[Example, ...]

    def to_json(self) -> dict[str, Any]:
        return {"format": self.format, "confidence": self.confidence, "examples": _examples_to_json(self.examples)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatFinding:
    """The format of a column. If it is ambiguous, ``alternatives`` give other values; the likeliest is first."""

    field: str
    column: str
    format: str
    confidence: float
    reason: str
    examples: tuple[Example, ...] = ()
    is_ambiguous: bool = False
    alternatives: tuple[FormatChoice, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "field": self.field,
            "column": self.column,
            "format": self.format,
            "confidence": self.confidence,
            "reason": self.reason,
            "examples": _examples_to_json(self.examples),
            "ambiguous": self.is_ambiguous,
            "alternatives": [each.to_json() for each in self.alternatives],
        }

    def describe_doubt(self) -> str:
        choices = [FormatChoice(self.format, self.confidence, self.examples), *self.alternatives]
        doubt = f'Column "{self.column}" can be read in two ways'
        if not all(each.examples for each in choices):  # values of a sensitive field
            return f"{doubt}: {' or '.join(each.format for each in choices)}"
        readings = " or ".join(f'"{each.examples[0][1]}" ({each.format})' for each in choices)
        return f'{doubt}: "{self.examples[0][0]}" is {readings}'


def _examples_to_json(examples: Iterable[Example]) -> list[dict[str, str | None]]:
    return [{"before": before, "after": after} for before, after in examples]


@dataclass(slots=True)
class _Reading:
    """The values of a column in one format; None where the format does not fit."""

    format: str
    values: list[Any]
    texts: list[str | None]
    weight: float = 0.0
    fits: frozenset[int] = field(default_factory=frozenset)


@dataclass(slots=True)
class _Hints:
    """What the rest of the file makes likely: the delimiter, and the formats of other columns. It proves nothing."""

    delimiter: str | None
    formats: list[str] = field(default_factory=list)

    def compute_weight(self, name: str, of: Field) -> float:
        kind = get_value_format(name).kind
        return self._weigh_number(name, of) if kind == "number" else self._weigh_date(name)

    def _weigh_number(self, name: str, of: Field) -> float:
        is_comma = name.endswith("comma")
        weight = 0.5 + (0.1 if self._has_comma == is_comma else -0.1)
        if self._is_format_known("decimal-comma" if is_comma else "decimal-point"):
            weight += 0.3
        if self._is_format_known("decimal-point" if is_comma else "decimal-comma"):
            weight -= 0.3
        if not is_comma and of.scale == 3:  # noqa: PLR2004  as PostgreSQL writes numeric(…, 3)
            weight += 0.2
        if name.startswith("percent"):
            is_share = of.maximum is not None and Decimal(of.maximum) <= 1
            weight += 0.3 if is_share else -0.2
        return weight

    def _weigh_date(self, name: str) -> float:
        separator = re.sub(r"[A-Z]", "", name)[:1]
        if name.startswith("Y"):
            return 0.6 if separator == "-" else 0.3
        is_day_first = name.startswith("D")
        weight = 0.5 + (0.1 if self._has_comma == is_day_first else -0.1)
        same = [each for each in self.formats if each[:1] in "DM" and get_value_format(each).kind == "date"]
        weight += 0.3 * any(each[0] == name[0] for each in same) - 0.3 * any(each[0] != name[0] for each in same)
        if separator in ".-":
            weight += (0.35 if separator == "." else 0.15) * (1 if is_day_first else -1)
        return weight - (0.1 if ":" in name else 0)

    @property
    def _has_comma(self) -> bool:
        return self.delimiter == ";" or self._is_format_known("decimal-comma")

    def _is_format_known(self, name: str) -> bool:
        return any(each.startswith(name) for each in self.formats)


def detect_formats(
    fields: Mapping[str, Field],
    records: Sequence[Any],
    *,
    delimiter: str | None = None,
    given: Mapping[str, str] | None = None,
    translations: Mapping[str, Mapping[str, str]] | None = None,
    unescape_formulas: bool = False,
) -> list[FormatFinding]:
    """Return a finding for each column whose texts show a format. Columns in plain notation have none.

    Args:
        fields: The field of each column of the file.
        records: Rows of the file. Only texts count: other values have a type.
        delimiter: The delimiter of the file.
        given: The formats of fields that need no detection.
        translations: The texts of each field that are replaced before the format applies.
        unescape_formulas: Texts in the file can have an apostrophe in front.
    """
    hints = _Hints(delimiter, list((given or {}).values()))
    doubtful: list[tuple[str, Field, list[str]]] = []
    findings: dict[str, FormatFinding] = {}
    rows = [record for record in records if isinstance(record, dict)]
    for column, of in fields.items():
        if of.type not in KINDS_BY_TYPE or of.name in (given or {}) or of.formats:
            continue
        replaced = (translations or {}).get(of.name, {})
        texts = _collect_texts(rows, column, replaced, unescape_formulas=unescape_formulas)
        finding = detect_column_format(of, column, _thin_out(texts), hints) if texts else None
        if finding is not None and finding.is_ambiguous:
            doubtful.append((column, of, texts))
        elif finding is not None:
            findings[column] = finding
            hints.formats.append(finding.format)
    for column, of, texts in doubtful:  # again, with all texts and the formats of the other columns
        finding = detect_column_format(of, column, texts, hints)
        if finding is not None:
            findings[column] = finding
    return [findings[column] for column in fields if column in findings]


def describe_given_formats(
    fields: Mapping[str, Field], records: Sequence[Any], given: Mapping[str, str]
) -> list[FormatFinding]:
    """Return a finding for each column whose format the caller or the resource sets, with examples."""
    rows = [record for record in records if isinstance(record, dict)]
    findings = []
    for column, of in fields.items():
        if of.name in given:
            value_format = get_value_format(given[of.name])
            texts = _collect_texts(rows, column, {}, unescape_formulas=False)
            converted, _ = value_format.convert_column(value_format.replace_missing_words(list(texts)))
            examples = [(text, after) for text, after in zip(texts, converted, strict=True) if after is not None]
            findings.append(
                FormatFinding(
                    field=of.name,
                    column=column,
                    format=value_format.name,
                    confidence=1.0,
                    reason="The format is set",
                    examples=() if of.sensitive else tuple(examples[:EXAMPLES_MAX]),
                )
            )
    return findings


def resolve_formats(
    findings: Iterable[FormatFinding], given: Mapping[str, str], *, assume: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the formats by field, and the fields whose format is assumed.

    Raises:
        AmbiguousFormats: Columns can be read in two ways, and ``assume`` is not set.
    """
    listed = list(findings)
    doubts = [each for each in listed if each.is_ambiguous]
    if doubts and not assume:
        raise AmbiguousFormats(
            [each.describe_doubt() for each in doubts],
            [("formats", each.field) for each in doubts],
            [each.to_json() for each in doubts],
        )
    return {each.field: each.format for each in listed} | dict(given), tuple(each.field for each in doubts)


def _collect_texts(
    rows: Iterable[Mapping[str, Any]], column: str, translations: Mapping[str, str], *, unescape_formulas: bool
) -> list[str]:
    """Return different texts of a column."""
    seen = (text.strip() for row in rows if isinstance(text := row.get(column), str))
    if translations:
        seen = (translations.get(text, text) for text in seen)
    texts = (unescape_formula(text) for text in seen) if unescape_formulas else seen
    return list(dict.fromkeys(text for text in texts if 0 < len(text) <= SAMPLE_TEXT_MAX_CHARS))


def _thin_out(texts: list[str]) -> list[str]:
    """Return some of many texts, from all parts of the file: those with separators, as integers show no format."""
    if len(texts) <= SAMPLE_TEXTS_MAX:
        return texts
    separated = [text for text in texts if not text.isdecimal()] or texts
    return separated[:: -(-len(separated) // SAMPLE_TEXTS_MAX)]


def detect_column_format(of: Field, column: str, texts: Sequence[str], hints: Any = None) -> FormatFinding | None:
    """Return the format of a column, from different texts of it; None if all of them are in plain notation."""
    hints = hints or _Hints(None)
    plain = _read_plain(of, texts)
    missing = [text for text, value in zip(texts, plain, strict=True) if value is None and is_missing_word(text)]
    values = [text for text in texts if text not in set(missing)]
    finding = _detect_format_of_values(of, column, values, hints) if values else None
    if not missing:
        return finding
    words = tuple((text, None) for text in missing[:EXAMPLES_MAX])
    if finding is None:
        return FormatFinding(
            field=of.name,
            column=column,
            format=UNDECIDED_FORMAT,
            confidence=CERTAIN,
            reason="Words such as n/a are missing values",
            examples=() if of.sensitive else words,
        )
    others = tuple(replace(each, format=each.format + NULLS_SUFFIX) for each in finding.alternatives)
    return replace(
        finding,
        format=finding.format + NULLS_SUFFIX,
        examples=() if of.sensitive else (finding.examples + words)[: EXAMPLES_MAX + 1],
        alternatives=others,
    )


def _read_plain(of: Field, texts: Sequence[str]) -> list[str | None]:
    """Return the values as they are read without a format; None if they are invalid."""
    unbounded = replace(of, precision=None, scale=None, sql_type="numeric" if of.type == "number" else of.sql_type)
    converted, wrong = TYPE_READERS[of.type](unbounded, list(texts))
    return [None if at in wrong else text for at, text in enumerate(converted)]


def _detect_format_of_values(of: Field, column: str, texts: Sequence[str], hints: _Hints) -> FormatFinding | None:
    kind = KINDS_BY_TYPE[of.type]
    plain = _read_plain(of, texts)
    if kind == "number":
        if all(text.isascii() and text.isdecimal() for text in texts):
            return None
        names = [name for name, each in VALUE_FORMATS.items() if each.kind == "number"]
    elif None not in plain:
        return None
    else:
        odd = [text for text, value in zip(texts, plain, strict=True) if value is None][:PROBE_TEXTS_MAX]
        names = [
            name
            for name, each in VALUE_FORMATS.items()
            if each.kind == kind and any(each.parse(text) is not None for text in odd) and _is_plausible(name, odd)
        ]
    readings = [_read_in_format(name, of, texts) for name in names]
    if kind == "date":
        readings += [
            _read_in_format(f"{each.format}:{SHORT_YEAR_PIVOT}", of, texts)
            for each in readings
            if _SHORT_YEAR.search(each.format)
        ]
        readings = _drop_unlikely_year_positions(readings, texts)
    is_decided = kind != "number" or _is_decimal_mark_proved(readings)
    readings = [each for each in readings if each.fits]
    if not readings:
        return None
    for each in readings:
        each.weight = hints.compute_weight(each.format, of) if kind in ("number", "date") else 1
    best = max(readings, key=lambda each: (len(each.fits), each.weight))
    rivals = _find_rivals(best, readings)
    is_plain = kind != "number" and len(texts) - plain.count(None) >= PLAIN_SHARE_MIN * len(texts)
    if (not rivals and not is_decided) or (rivals and is_plain):
        return None
    return _build_finding(of, column, texts, best, rivals)


def _is_plausible(name: str, texts: Sequence[str]) -> bool:
    """Return whether texts can be days of a date: five digits, which are years from 1927 to 2119."""
    return not name.startswith("excel") or (
        name == "excel-date" and all(re.fullmatch(r"[1-7][0-9]{4}(?:[.,][0-9]+)?", text) for text in texts)
    )


def _read_in_format(name: str, of: Field, texts: Sequence[str]) -> _Reading:
    parse = get_value_format(name).parse
    parsed = [parse(text) for text in texts]
    convert: Callable[[str], Any] = str
    if KINDS_BY_TYPE[of.type] == "number":
        convert = _to_whole_number if of.type == "integer" else _to_number
    values = [None if text is None else convert(text) for text in parsed]
    fits = frozenset(at for at, value in enumerate(values) if value is not None)
    return _Reading(name, values, parsed, fits=fits)


def _to_number(text: str) -> Decimal | str | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number.normalize() if number.is_finite() else text.lower()


def _to_whole_number(text: str) -> Decimal | None:
    number = _to_number(text)
    if not isinstance(number, Decimal) or number.adjusted() > 40:  # noqa: PLR2004  far more digits than an integer has
        return None
    return number if number == number.to_integral_value() else None


def _find_rivals(best: _Reading, readings: Sequence[_Reading]) -> list[_Reading]:
    """Return the readings that give other values and are not disproved, the likeliest of those with equal values.

    A value that only ``best`` can read disproves another reading, unless a value proves the opposite.
    """
    rivals: list[_Reading] = []
    for each in sorted(readings, key=lambda one: (-len(one.fits), -one.weight)):
        is_other = each is not best and any(each.values[at] != best.values[at] for at in each.fits & best.fits)
        is_disproved = each.fits < best.fits
        is_new = all(any(each.values[at] != one.values[at] for at in each.fits & one.fits) for one in rivals)
        if is_other and not is_disproved and is_new:
            rivals.append(each)
    return rivals


def _is_decimal_mark_proved(readings: Sequence[_Reading]) -> bool:
    """Return whether a value excludes one of the decimal marks: integers without separators fit both."""
    point, comma = (each.fits for each in readings if each.format.startswith("decimal"))
    return point != comma


def _drop_unlikely_year_positions(readings: list[_Reading], texts: Sequence[str]) -> list[_Reading]:
    """Drop the readings with two-digit years at the wrong end, if the values show where the day is.

    A day takes many values and a year few. A few values that are the first or the last days of months can be both.
    """
    parts = [found for text in texts if len(found := re.findall(r"\d+", text.partition(" ")[0])) == 3]  # noqa: PLR2004
    first, last = ({part[at] for part in parts} for at in (0, 2))

    def are_years(few: set[str], many: set[str]) -> bool:
        return len(few) <= YEARS_VARY_MAX and len(many) >= DAYS_VARY_MIN and few.isdisjoint(MONTH_EDGE_DAYS)

    if are_years(last, first):
        return [each for each in readings if not re.match(r"YY(?!Y)", each.format)]
    if are_years(first, last):
        return [each for each in readings if not re.search(r"\WYY(?!Y)", each.format)]
    return readings


def _build_finding(
    of: Field, column: str, texts: Sequence[str], best: _Reading, rivals: Sequence[_Reading]
) -> FormatFinding:
    if not rivals:
        share = len(best.fits) / len(texts)
        changed = [at for at in sorted(best.fits) if best.texts[at] != texts[at]] or sorted(best.fits)
        odd = len(texts) - len(best.fits)
        return FormatFinding(
            field=of.name,
            column=column,
            format=best.format,
            confidence=round(min(CERTAIN, 0.6 + 0.39 * share), 2),
            reason=f"{len(best.fits)} of {len(texts)} different values have this format"
            if odd
            else "All values of the sample have this format",
            examples=_make_examples(of, best, texts, changed),
        )
    total = best.weight + sum(each.weight for each in rivals)
    shares = [round(min(AMBIGUOUS_MAX, max(0.05, each.weight / total)), 2) for each in (best, *rivals)]
    different = [at for at in sorted(best.fits & rivals[0].fits) if best.values[at] != rivals[0].values[at]]
    is_mixed = any(not each.fits <= best.fits for each in rivals)
    return FormatFinding(
        field=of.name,
        column=column,
        format=best.format,
        confidence=shares[0],
        reason="The values have several formats" if is_mixed else "All values fit several formats",
        examples=_make_examples(of, best, texts, different),
        is_ambiguous=True,
        alternatives=tuple(
            FormatChoice(each.format, share, _make_examples(of, each, texts, different))
            for each, share in zip(rivals, shares[1:], strict=True)
        ),
    )


def _make_examples(of: Field, reading: _Reading, texts: Sequence[str], indexes: Sequence[int]) -> tuple[Example, ...]:
    """Return values before and after a reading; none of a sensitive field."""
    if of.sensitive:
        return ()
    return tuple((texts[at], reading.texts[at]) for at in indexes[:EXAMPLES_MAX])


KNOWN_FORMATS: list[dict[str, Any]] = [
    {
        "name": each.name,
        "types": [type_ for type_, kind in KINDS_BY_TYPE.items() if each.kind in (kind, "text")],
        "description": each.describes,
        "example": {"before": each.example[0], "after": each.example[1]},
    }
    for each in VALUE_FORMATS.values()
]
