"""The named formats of values as people write them: numbers, dates, yes/no words and words for a missing value.

A format converts texts to the plain notation that the readers of types accept, such as ``1234.5`` and ``2024-12-31``.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import date, timedelta
from decimal import Context, Decimal
from functools import lru_cache
from typing import Literal

from tidemill.core.errors import InvalidInput, format_suggestion
from tidemill.core.file_format import ColumnType
from tidemill.files.file_sample import NULL_WORDS
from tidemill.tables.resource import Field
from tidemill.tables.values.column_texts import ColumnTexts, find_indexes_not_matching, join_texts

FormatKind = Literal["number", "date", "boolean", "text"]
KINDS_BY_TYPE: dict[ColumnType, FormatKind] = {
    "integer": "number",
    "number": "number",
    "date": "date",
    "timestamp": "date",
    "boolean": "boolean",
}
PLAIN_FORMAT = "plain"
NULLS_SUFFIX = "+nulls"
MISSING_WORDS = NULL_WORDS - {"nan"}  # NaN is a number
MEMO_TEXTS_MAX = 20_000  # texts whose conversion is kept: dates and words occur many times in a column
DEFAULT_PIVOT = 70  # two-digit years from 00 to 69 are 2000 to 2069, as in PostgreSQL
MEMO_TEXT_MAX_CHARS = 100

Parse = Callable[[str], str | None]


@lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on its first use: most processes use none or one of the formats."""
    return re.compile(pattern)


class _Memo(dict[str, str | None]):
    """Converts texts and keeps the results of the latest ones."""

    def __init__(self, parse: Parse) -> None:
        super().__init__()
        self._parse = parse

    def __missing__(self, text: str) -> str | None:
        converted = self._parse(text)
        if len(text) <= MEMO_TEXT_MAX_CHARS:
            if len(self) >= MEMO_TEXTS_MAX:
                self.clear()
            self[text] = converted
        return converted


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """A named format. ``example`` is a text in the format and the same value in plain notation."""

    name: str
    kind: FormatKind
    describes: str  # completes "must be …" in errors
    example: tuple[str, str]
    parse: Parse  # None if the text does not have the format
    reads_nulls: bool = False  # words such as "n/a" are missing values
    reads_numbers: bool = False  # also converts numbers of workbooks and JSON, not only texts
    convert_in_bulk: Callable[[ColumnTexts], ColumnTexts | None] | None = None  # None if a text needs ``parse``
    _memo: _Memo = dataclass_field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_memo", _Memo(self.parse))

    def fits_type(self, type_: ColumnType) -> bool:
        return self.kind == "text" or KINDS_BY_TYPE.get(type_) == self.kind

    def convert_column(self, texts: ColumnTexts) -> tuple[ColumnTexts, list[int]]:
        """Return the texts in plain notation, None for missing ones, and the indexes of texts in another format."""
        if self.convert_in_bulk is not None and (converted := self.convert_in_bulk(texts)) is not None:
            return converted, []
        memo = self._memo
        if None not in texts and "" not in texts:
            found = list(map(memo.__getitem__, texts))  # type: ignore[arg-type]
        else:
            found = [memo[text] if text else text for text in texts]
        return found, [at for at, text in enumerate(found) if text is None and texts[at]] if None in found else []

    def replace_missing_words(self, texts: ColumnTexts) -> ColumnTexts:
        """Return the texts, with None for words such as "n/a" if the format has them."""
        if not self.reads_nulls:
            return texts
        return [None if text and is_missing_word(text) else text for text in texts]


def is_missing_word(text: str) -> bool:
    return len(text) < 20 and text.strip().casefold() in MISSING_WORDS  # noqa: PLR2004  longer than every word


_SPACES = " \u00a0\u2009\u202f"
_APOSTROPHES = "'\u2019"
_MINUS_SIGNS = "\u2212\u2013"
_SIGN_NAMES = "$ € £ ¥ ₹ ₽ ₺ ₩ ₪ ₴ ₫ ฿ US$ R$ A$ C$ HK$ NZ$ kr zł Kč Ft Fr. Rs. lei"
_CODE_NAMES = """AED ARS AUD BGN BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HKD HUF IDR ILS INR ISK JPY KES KRW MAD
    MXN MYR NGN NOK NZD PEN PHP PKR PLN RON RSD RUB SAR SEK SGD THB TND TRY TWD UAH USD VND ZAR"""
CURRENCIES = tuple(sorted((*_SIGN_NAMES.split(), *_CODE_NAMES.split()), key=len, reverse=True))
_SPECIAL_NUMBER = re.compile(r"nan|[+-]?infinity", re.IGNORECASE)
_MAY_BE_CURRENCY = re.compile(r"[A-Za-z$\u0080-\uffff]")
_PLAIN_NUMBER_PATTERN = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_PLAIN_NUMBER = re.compile(rf"{_PLAIN_NUMBER_PATTERN}|nan|[+-]?infinity", re.IGNORECASE)
_HUNDREDTHS = Context(prec=150_000)  # more digits than numeric has


@dataclass(frozen=True, slots=True)
class _NumberNotation:
    """Numbers with this decimal mark. ``is_share``: with a percent sign, 12 % becomes 0.12."""

    mark: str
    is_share: bool = False

    @property
    def separators(self) -> str:
        """The characters that can separate groups of three digits."""
        return ("." if self.mark == "," else ",") + _SPACES + _APOSTROPHES

    def build_pattern(self, separators: str) -> str:
        """Return a pattern for digits, in groups of three with one of these separators, and a fraction."""
        groups = "|".join(f"(?:{re.escape(one)}[0-9]{{3}})+" for one in separators)
        whole = f"(?:[1-9][0-9]{{0,2}}(?:{groups})|[0-9]+)" if groups else "[0-9]+"
        mark = re.escape(self.mark)
        return rf"(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+)"

    def make_parser(self) -> Parse:
        space, sign = f"[{_SPACES}]?", rf"[+\-{_MINUS_SIGNS}]"
        mark, currency = re.escape(self.mark), _build_currency_pattern(CURRENCIES)
        pattern = (
            rf"(?P<open>\()?(?P<sign>{sign})?{space}{currency}?{space}(?P<inner>{sign})?{space}"
            rf"(?P<number>{self.build_pattern(self.separators)})"
            rf"(?:(?<={mark})[-\u2013\u2014]{{1,2}}|(?P<exponent>[eE][+-]?[0-9]{{1,3}}))?"
            rf"{space}(?P<percent>%)?{space}{currency}?(?P<last>-)?(?P<close>\))?"
        )

        def parse(text: str) -> str | None:
            found = _compile(pattern).fullmatch(text.strip())
            if found is None:
                plain = _PLAIN_NUMBER if self.mark == "." else _SPECIAL_NUMBER
                return text if plain.fullmatch(text) and not self.is_share else None
            signs = [one for name in ("sign", "inner", "last") if (one := found[name])]
            if len(signs) + bool(found["open"]) > 1 or bool(found["open"]) != bool(found["close"]):
                return None
            if self.is_share and not found["percent"]:
                return None
            is_negative = bool(found["open"]) or any(one != "+" for one in signs)
            number = (
                ("-" if is_negative else "")
                + self._convert_to_plain_numbers(found["number"])
                + (found["exponent"] or "")
            )
            return format(_HUNDREDTHS.scaleb(Decimal(number), -2), "f") if self.is_share else number

        return parse

    def _convert_to_plain_numbers(self, text: str) -> str:
        """Remove group separators, and use a point as the decimal mark."""
        for one in self.separators:
            if one in text:
                text = text.replace(one, "")
        return text.replace(",", ".") if self.mark == "," else text

    def convert_in_bulk(self, texts: ColumnTexts) -> ColumnTexts | None:
        """Convert a column in which every text is a plain number of this notation, perhaps with a currency."""
        joined = join_texts(texts)
        if self.mark == "." and not find_indexes_not_matching(_PLAIN_NUMBER_PATTERN, texts):
            return texts
        currencies = [one for one in CURRENCIES if one in joined] if _MAY_BE_CURRENCY.search(joined) else []
        pattern = "[+-]?" + self.build_pattern("".join(one for one in self.separators if one in joined))
        if currencies:
            named = _build_currency_pattern(currencies)
            pattern = rf"(?:{named}[ \u00a0]?)?{pattern}(?:[ \u00a0]?{named})?"
        if find_indexes_not_matching(pattern, texts):
            return None
        for one in currencies:
            joined = joined.replace(one, "")
        converted: ColumnTexts = list(self._convert_to_plain_numbers(joined).split("\n"))
        if None in texts:
            return [None if text is None else one for text, one in zip(texts, converted, strict=True)]
        return converted


def _build_currency_pattern(names: Iterable[str]) -> str:
    return "(?:" + "|".join(map(re.escape, names)) + ")"


def _make_number_format(name: str, notation: _NumberNotation, describes: str, example: tuple[str, str]) -> ValueFormat:
    return ValueFormat(
        name=name,
        kind="number",
        describes=describes,
        example=example,
        parse=notation.make_parser(),
        convert_in_bulk=None if notation.is_share else notation.convert_in_bulk,
    )


_MONTHS = {
    1: "jan january januar jänner jän janvier janv ene enero gen gennaio januari janeiro",
    2: "feb february februar feber février fevrier févr fevr fév febrero febbraio februari fevereiro fev",
    3: "mar march märz maerz mär mrz mars marzo maart mrt março marco",
    4: "apr april avril avr abr abril aprile",
    5: "may mai mayo mag maggio mei maio",
    6: "jun june juni juin junio giu giugno junho",
    7: "jul july juli juillet juil julio lug luglio julho",
    8: "aug august août aout aoû ago agosto augustus",
    9: "sep sept september septembre septiembre set settembre setembro",
    10: "oct october oktober okt octobre octubre ott ottobre outubro out",
    11: "nov november novembre noviembre novembro",
    12: "dec december dezember dez décembre decembre déc dic diciembre dicembre dezembro",
}
MONTH_NUMBERS = {name: number for number, names in _MONTHS.items() for name in names.split()}
_TIME_OF_DAY = (
    r"(?:(?:[T ]|, ?)(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,6}))?)?"
    r" ?(?P<half>[AaPp]\.?[Mm]\.?)?(?: ?(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2}))?(?: Uhr)?)?"
)
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9])")
_NOON = 12
_DATE_PARTS = {
    "DD": "(?P<day>[0-9]{1,2})",
    "MM": "(?P<month>[0-9]{1,2})",
    "MMM": r"(?P<name>[^\W\d_]{3,12})\.?",
    "YYYY": "(?P<year>[0-9]{4})",
    "YY": "(?P<year>[0-9]{2})",
}


def _make_date_parser(name: str, pivot: int = DEFAULT_PIVOT) -> Parse:
    """Return the parser of a format such as DD.MM.YYYY. Dates in ISO 8601 keep their form in every format."""
    if "MMM" in name:
        parts = [_DATE_PARTS[part] for part in name.split(" ")]
        pattern = r"(?:,? ?(?:de |of )|[ ./-]{1,2}|, ?)".join(parts)
        pattern = pattern.replace("(?P<day>[0-9]{1,2})", r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th|er|º|°|\.)?")
    else:
        separator = re.sub("[DMY]", "", name)[:1]
        parts = [_DATE_PARTS[part] for part in name.split(separator)] if separator else []
        pattern = re.escape(separator).join(parts) or "(?P<year>[0-9]{4})(?P<month>[0-9]{2})(?P<day>[0-9]{2})"
    pattern += _TIME_OF_DAY

    def parse(text: str) -> str | None:
        found = _compile(pattern).fullmatch(text)
        if found is None:
            is_plain = _ISO_DATE.match(text) or text.lower() in ("infinity", "-infinity")
            return text if is_plain else None
        known = found.groupdict()
        year = int(known["year"])
        if len(known["year"]) == 2:  # noqa: PLR2004
            year += 2000 if year < pivot else 1900
        month = int(known["month"]) if "month" in known else MONTH_NUMBERS.get(known["name"].lower(), 0)
        try:
            day = date(year, month, int(known["day"])).isoformat()
        except ValueError:
            return None
        return day if known["hour"] is None else _add_time_of_day(day, known)

    return parse


def _add_time_of_day(day: str, known: dict[str, str | None]) -> str | None:
    hour, half = int(known["hour"] or 0), (known["half"] or "").lower()[:1]
    if half:
        if not 1 <= hour <= _NOON:
            return None
        hour = hour % _NOON + (_NOON if half == "p" else 0)
    fraction = f".{known['fraction']}" if known["fraction"] else ""
    return f"{day}T{hour:02}:{known['minute']}:{known['second'] or '00'}{fraction}{known['zone'] or ''}"


_EXCEL_LAST_DAY, _SECONDS_PER_DAY = 2_958_465, 86_400
_EXCEL_EPOCHS = {"excel-date": date(1899, 12, 30), "excel-date-1904": date(1904, 1, 1)}
_match_serial = re.compile(r"([0-9]{1,7})(?:[.,]([0-9]{1,12}))?").fullmatch


def _make_serial_date_parser(name: str) -> Parse:
    epoch = _EXCEL_EPOCHS[name]

    def parse(text: str) -> str | None:
        found = _match_serial(text)
        if found is None:
            return text if _ISO_DATE.match(text) else None
        if not 60 < (days := int(found[1])) <= _EXCEL_LAST_DAY:  # noqa: PLR2004  Excel counts February 29, 1900
            return None
        seconds = round(float(f"0.{found[2] or 0}") * _SECONDS_PER_DAY)
        try:
            day = epoch + timedelta(days, seconds // _SECONDS_PER_DAY * _SECONDS_PER_DAY)
        except OverflowError:
            return None
        if not seconds:
            return day.isoformat()
        clock = timedelta(seconds=seconds % _SECONDS_PER_DAY)
        return f"{day.isoformat()}T{str(clock).zfill(8)}"

    return parse


_YES = "yes y true t on 1 ja j wahr oui o vrai v sí si s sì vero verdadero verdadeiro sim waar"
_NO = "no n false f off 0 nein falsch non faux falso não nao nee onwaar"
YES_NO_WORDS = dict.fromkeys(_YES.split(), "true") | dict.fromkeys(_NO.split(), "false")


def _parse_yes_or_no(text: str) -> str | None:
    return YES_NO_WORDS.get(text.casefold())


def _keep_column(texts: ColumnTexts) -> ColumnTexts:
    return texts


def _keep_text(text: str) -> str:
    return text


_NUMERIC_DATES = {
    "YYYY-MM-DD": ("2024-12-31", "2024-12-31"),
    "YYYY/MM/DD": ("2024/12/31", "2024-12-31"),
    "YYYY.MM.DD": ("2024.12.31", "2024-12-31"),
    "YYYYMMDD": ("20241231", "2024-12-31"),
    **{f"DD{one}MM{one}YYYY": (f"31{one}12{one}2024", "2024-12-31") for one in "./-"},
    **{f"MM{one}DD{one}YYYY": (f"12{one}31{one}2024", "2024-12-31") for one in "/-."},
    **{f"DD{one}MM{one}YY": (f"31{one}12{one}24", "2024-12-31") for one in "./-"},
    **{f"MM{one}DD{one}YY": (f"12{one}31{one}24", "2024-12-31") for one in "/-."},
    **{f"YY{one}MM{one}DD": (f"24{one}12{one}31", "2024-12-31") for one in "-/."},
    "DD MMM YYYY": ("31. Dezember 2024", "2024-12-31"),
    "MMM DD YYYY": ("December 31, 2024", "2024-12-31"),
    "DD MMM YY": ("31-Dec-24", "2024-12-31"),
}
_NUMBERS = [
    _make_number_format(
        "decimal-point",
        _NumberNotation("."),
        "a number with a decimal point, such as 1,234.50",
        ("1,234.50", "1234.50"),
    ),
    _make_number_format(
        "decimal-comma",
        _NumberNotation(","),
        "a number with a decimal comma, such as 1.234,50",
        ("1.234,50", "1234.50"),
    ),
    _make_number_format(
        "percent-point",
        _NumberNotation(".", is_share=True),
        "a percentage with a decimal point, such as 12.5 %",
        ("12.5 %", "0.125"),
    ),
    _make_number_format(
        "percent-comma",
        _NumberNotation(",", is_share=True),
        "a percentage with a decimal comma, such as 12,5 %",
        ("12,5 %", "0.125"),
    ),
]
_DATES = [
    ValueFormat(
        name=name,
        kind="date",
        describes=f"a date in the format {name}, such as {example[0]}",
        example=example,
        parse=_make_date_parser(name),
    )
    for name, example in _NUMERIC_DATES.items()
]
_SERIAL_DATES = [
    ValueFormat(
        name=name,
        kind="date",
        describes=f"a date as the number of days since {'1904' if epoch.year > 1900 else '1900'}, as in Excel",  # noqa: PLR2004
        example=("45657", (epoch + timedelta(45_657)).isoformat()),
        parse=_make_serial_date_parser(name),
        reads_numbers=True,
    )
    for name, epoch in _EXCEL_EPOCHS.items()
]
_OTHERS = [
    ValueFormat(
        name="yes-no",
        kind="boolean",
        describes="a word for yes or no, such as ja or non",
        example=("ja", "true"),
        parse=_parse_yes_or_no,
    ),
    ValueFormat(
        name=PLAIN_FORMAT,
        kind="text",
        describes="in plain notation",
        example=("0049", "0049"),
        parse=_keep_text,
        convert_in_bulk=_keep_column,
    ),
    ValueFormat(
        name="text",
        kind="text",
        describes="text",
        example=("0049", "0049"),
        parse=_keep_text,
        convert_in_bulk=_keep_column,
    ),
]
VALUE_FORMATS: dict[str, ValueFormat] = {one.name: one for one in (*_NUMBERS, *_DATES, *_SERIAL_DATES, *_OTHERS)}


@lru_cache(maxsize=512)
def get_value_format(name: str) -> ValueFormat:
    """Return a format by its name; InvalidInput if there is none.

    ``+nulls`` after the name makes words such as "n/a" missing values; ``nulls`` alone does so in plain notation.
    ``:YY`` after a format with two-digit years sets the first year of the 1900s: with ``DD.MM.YY:30``, 30 is 1930.
    """
    if name == NULLS_SUFFIX[1:]:
        return replace(get_value_format(PLAIN_FORMAT + NULLS_SUFFIX), name=name)
    if name.endswith(NULLS_SUFFIX):
        return replace(get_value_format(name.removesuffix(NULLS_SUFFIX)), name=name, reads_nulls=True)
    base, separator, pivot = name.partition(":")
    found = VALUE_FORMATS.get(base)
    if found is None:
        raise InvalidInput(
            f'Unknown format "{name}"{format_suggestion(base, VALUE_FORMATS)}. '
            f"Known formats: {', '.join(VALUE_FORMATS)}."
        )
    if not separator:
        return found
    has_short_year = "YY" in base and "YYYY" not in base
    if not has_short_year or not (pivot.isascii() and pivot.isdecimal() and len(pivot) == 2):  # noqa: PLR2004
        raise InvalidInput(
            f'Invalid format "{name}". Only a format with two-digit years can end in a first year, such as DD.MM.YY:30.'
        )
    return replace(found, name=name, parse=_make_date_parser(base, int(pivot)))


def check_format_fits_field(name: str, field: Field) -> None:
    """Raise InvalidInput if there is no format with this name, or if it is for fields of another type."""
    if not get_value_format(name).fits_type(field.type):
        raise InvalidInput(f'Format "{name}" cannot be used for the field "{field.name}" of type {field.type}')
