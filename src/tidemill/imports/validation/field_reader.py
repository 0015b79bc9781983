"""Reads and validates the values of one field: normalizers, empty values, type and rules."""

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import NoneType
from typing import Any

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import is_text_type, unescape_formula
from tidemill.imports.validation.canonical_values import make_comparable_parser
from tidemill.imports.validation.row_errors import RowErrorDetail, RowErrorGroup, RowErrors
from tidemill.imports.validation.rule_evaluation import UnreadableText
from tidemill.tables.resource import Field, allows_empty_text
from tidemill.tables.values.column_texts import (
    REDACTED_VALUE,
    ColumnTexts,
    clean_value_for_error,
    find_indexes_not_matching,
    is_storable_text,
    join_texts,
)
from tidemill.tables.values.json_values import encode_json
from tidemill.tables.values.type_readers import TYPE_READERS, normalize_array_column
from tidemill.tables.values.value_formats import ValueFormat

RuleViolations = list[tuple[str, str, list[int]]]
"""Error code, reason and row indexes."""
RuleCheck = Callable[[ColumnTexts], RuleViolations]


def build_rule_checks(field: Field) -> list[RuleCheck]:
    rules = []
    if field.enum:
        rules.append(_build_enum_check(field.enum))
    if field.pattern is not None:
        rules.append(_build_pattern_check(field.pattern, field.pattern_says))
    if field.min_length is not None or field.max_length is not None:
        rules.append(_build_length_check(field.min_length or 0, field.max_length))
    if field.max_words is not None:
        rules.append(_build_word_count_check(field.max_words))
    if any(bound is not None for bound in (field.minimum, field.above, field.maximum, field.below)):
        rules.append(_build_range_check(field))
    return rules


def _build_enum_check(values: tuple[str, ...]) -> RuleCheck:
    allowed = frozenset((*values, None))
    reason = "must be one of " + ", ".join(f'"{value}"' for value in values)

    def find_violations(texts: ColumnTexts) -> RuleViolations:
        if allowed.issuperset(texts):
            return []
        return [("enum", reason, [index for index, text in enumerate(texts) if text not in allowed])]

    return find_violations


def _build_pattern_check(pattern: str, says: str | None) -> RuleCheck:
    reason = f"must be {says}" if says else f"must match {pattern}"

    def find_violations(texts: ColumnTexts) -> RuleViolations:
        return [("pattern", reason, find_indexes_not_matching(pattern, texts))]

    return find_violations


def _build_length_check(low: int, high: int | None) -> RuleCheck:
    def find_violations(texts: ColumnTexts) -> RuleViolations:
        lengths = [low if text is None else len(text) for text in texts] if None in texts else list(map(len, texts))  # type: ignore[arg-type]
        broken: RuleViolations = []
        if high is not None and max(lengths, default=0) > high:
            long = [index for index, length in enumerate(lengths) if length > high]
            broken.append(("too_long", f"must have at most {high} characters", long))
        if min(lengths, default=low) < low:
            short = [index for index, length in enumerate(lengths) if length < low]
            broken.append(("too_short", f"must have at least {low} characters", short))
        return broken

    return find_violations


def _build_word_count_check(high: int) -> RuleCheck:
    def find_violations(texts: ColumnTexts) -> RuleViolations:
        # A word and the space before it have at least two characters, so short texts need no counting.
        long = [(index, text) for index, text in enumerate(texts) if text is not None and len(text) >= 2 * high]
        return [
            (
                "too_many_words",
                f"must have at most {high} words",
                [index for index, text in long if len(text.split()) > high],
            )
        ]

    return find_violations


def _build_range_check(field: Field) -> RuleCheck:
    """Compare values, not texts."""
    of = make_comparable_parser(field)
    bounds = [
        (of(bound), fails, code, f"{says} {bound}")
        for bound, fails, code, says in (
            (field.minimum, operator.lt, "too_small", "must be at least"),
            (field.above, operator.le, "too_small", "must be greater than"),
            (field.maximum, operator.gt, "too_large", "must be at most"),
            (field.below, operator.ge, "too_large", "must be less than"),
        )
        if bound is not None
    ]

    def find_violations(texts: ColumnTexts) -> RuleViolations:
        values = [None if text is None else of(text) for text in texts]
        return [
            (code, says, [index for index, value in enumerate(values) if value is not None and fails(value, bound)])
            for bound, fails, code, says in bounds
        ]

    return find_violations


Normalizer = Callable[[str], str]
_BUILTIN_NORMALIZER_FUNCTIONS: dict[str, Normalizer] = {
    "trim": str.strip,
    "collapse": lambda text: " ".join(text.split()),
    "lower": str.lower,
    "upper": str.upper,
}
_STRUCTURED_TYPES = ("json", "array")
PLAIN_NUMBER_MAX_DIGITS = 400  # longer numbers are written with an exponent
_match_ambiguous_number = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}").fullmatch
AMBIGUOUS_NUMBER_REASON = "has a point that can separate decimals or thousands. Set the format of the field."
_BOOLEAN_WORDS = {"t": "true", "f": "false"}  # as rules write them
_FREE_TEXT_TYPES = ("text", "other", *_STRUCTURED_TYPES)  # types whose text can contain any character


class FieldReader:
    """Reads the values of one field for all rows of a batch at a time."""

    def __init__(
        self,
        field: Field,
        normalizers: Mapping[str, Normalizer] | None = None,
        *,
        translations: Mapping[str, str] | None = None,
        unescape_formulas: bool = False,
        keep_empty: bool = False,
        keep_null: bool = False,
        texts_are_json: bool = False,
        value_format: ValueFormat | None = None,
        reject_ambiguous: bool = False,
    ) -> None:
        """Create a reader; InvalidInput if a normalizer of the field is not declared.

        Args:
            field: The field and its rules.
            normalizers: The declared normalizers by name, in addition to the built-in ones.
            translations: Texts to replace before all other steps. They are compared without surrounding whitespace.
            unescape_formulas: Remove the apostrophes that an export put before formulas.
            keep_empty: Empty text is a value.
            keep_null: A missing value is NULL instead of the default.
            texts_are_json: Text in a JSON field is a JSON string, not serialized JSON.
            value_format: The format of texts; other values of the file, such as numbers in JSON, do not have it.
            reject_ambiguous: A text such as 12.000 is invalid, because it can be 12 or 12000.
        """
        self._translations = dict(translations or {})
        self._texts_are_json = texts_are_json and field.type == "json"
        is_text = is_text_type(field.type, field.sql_type) or value_format is not None
        self._unescape_formulas = unescape_formulas and is_text
        self._keep_empty = keep_empty and allows_empty_text(field)
        self._keep_null = keep_null
        self._format = value_format
        self._rejects_ambiguous = reject_ambiguous and field.type in ("integer", "number")
        self._field = field
        known = _BUILTIN_NORMALIZER_FUNCTIONS | dict(normalizers or {})
        missing = [name for name in field.normalize if name not in known]
        if missing:
            raise InvalidInput(
                f'Field "{field.name}" uses the normalizer "{missing[0]}", which this mill does not declare'
            )
        self._normalize = [known[name] for name in field.normalize]
        self._read = normalize_array_column if field.type == "array" else TYPE_READERS[field.type]
        self._rules = build_rule_checks(field)

    def validate_and_convert_values(self, values: list[Any]) -> tuple[ColumnTexts, RowErrors]:
        """Return the text form of every value, None if it is missing or invalid, and the errors."""
        flaws = RowErrors()
        texts, wrong = self._read(self._field, self._normalize_to_texts(values, flaws))
        for index, reason in wrong.items():
            hides = self._field.sensitive and self._field.type == "array"  # its reasons quote elements
            self._add_error(
                flaws,
                index,
                "type",
                f"must be a value of type {self._field.sql_type}" if hides else reason,
                values[index],
            )
            texts[index] = None
        for rule in self._rules:
            for code, reason, rows in rule(texts):
                self._add_errors(flaws, code, reason, rows, values)
        return texts, flaws

    def read_rule_inputs(self, values: list[Any]) -> tuple[ColumnTexts, RowErrors]:
        """Return the texts that rules read, None if empty, and type errors. Defaults are not set, rules not checked.

        An invalid value is the ``UnreadableText`` of the file.
        """
        flaws = RowErrors()
        texts, wrong = self._read(self._field, self._normalize_to_texts(values, flaws, fills_empty=False))
        for index, reason in wrong.items():
            self._add_error(flaws, index, "type", reason, values[index])
        if self._field.type == "boolean":
            texts = list(map(_BOOLEAN_WORDS.get, texts))  # type: ignore[arg-type]
        if flaws.bad_rows:
            texts = list(texts)
            for index in flaws.bad_rows:
                texts[index] = UnreadableText(_convert_to_text(values[index], self._field.type) or "")
        return texts, flaws

    def convert_key_values(self, values: list[Any]) -> ColumnTexts:
        """Return texts to compare the values of a key field. Invalid values become None, and no rule is checked."""
        texts = self._normalize_to_texts(values, RowErrors())
        if self._field.type in ("text", "uuid"):
            return texts
        texts, wrong = self._read(self._field, texts)
        for index in wrong:
            texts[index] = None
        return texts

    def _normalize_to_texts(self, values: list[Any], flaws: RowErrors, *, fills_empty: bool = True) -> ColumnTexts:
        """Return normalized texts, None for missing values."""
        texts = self._convert_to_texts(values, flaws)
        if self._unescape_formulas:
            texts = [text and unescape_formula(text) for text in texts]
        if self._translations:
            texts = [text and self._translations.get(text.strip(), text) for text in texts]
        for normalize in self._normalize:
            texts = self._apply_normalizer(normalize, texts, values, flaws)
        if self._field.type not in _FREE_TEXT_TYPES:
            texts = _strip_texts(texts)
        if self._format is not None:
            texts = self._convert_from_format(self._format, texts, values, flaws)
        if self._rejects_ambiguous and "." in join_texts(texts):
            texts = self._reject_ambiguous_texts(texts, values, flaws)
        if None in texts or ("" in texts and not self._keep_empty):
            texts = self._replace_empty_texts(texts, flaws) if fills_empty else [text or None for text in texts]
        if self._field.type in _FREE_TEXT_TYPES and not is_storable_text(join_texts(texts)):
            texts = self._reject_unstorable_texts(texts, values, flaws)
        return texts

    def _convert_to_texts(self, values: list[Any], flaws: RowErrors) -> ColumnTexts:
        if self._texts_are_json:
            return [None if value is None else encode_json(value) for value in values]
        if set(map(type, values)) <= {str}:
            return values
        keep = self._field.type in _STRUCTURED_TYPES
        texts: ColumnTexts = []
        for index, value in enumerate(values):
            if isinstance(value, dict | list) and not keep:
                self._add_error(flaws, index, "type", "must be a single value", encode_json(value))
                texts.append(None)
            else:
                texts.append(_convert_to_text(value, self._field.type))
        return texts

    def _apply_normalizer(
        self, normalize: Normalizer, texts: ColumnTexts, values: list[Any], flaws: RowErrors
    ) -> ColumnTexts:
        """Apply a normalizer to all texts. If it raises for a text, that row gets an error."""
        try:
            return _normalize_texts_except_none(normalize, texts)
        except Exception:  # noqa: BLE001  it is a function of the user
            normalized: ColumnTexts = []
        for index, text in enumerate(texts):
            try:
                normalized += _normalize_texts_except_none(normalize, [text])
            except Exception as error:  # noqa: BLE001
                reason = "cannot be normalized" if self._field.sensitive else f"cannot be normalized: {error}"
                self._add_error(flaws, index, "type", reason, values[index])
                normalized.append(None)
        return normalized

    def _convert_from_format(
        self, value_format: ValueFormat, texts: ColumnTexts, values: list[Any], flaws: RowErrors
    ) -> ColumnTexts:
        """Convert the values that are texts in the file to plain notation."""
        others: list[int] = []
        # The days of a date are numbers in JSON and in workbooks.
        if not value_format.reads_numbers and not set(map(type, values)) <= {str, NoneType}:
            others = [at for at, value in enumerate(values) if not isinstance(value, str)]
        mine = list(texts) if others else texts
        for at in others:
            mine[at] = None
        converted, wrong = value_format.convert_column(value_format.replace_missing_words(mine))
        for at in others:
            converted[at] = texts[at]
        for at in wrong:
            self._add_error(flaws, at, "type", f"must be {value_format.describes}", values[at])
        return converted

    def _reject_ambiguous_texts(self, texts: ColumnTexts, values: list[Any], flaws: RowErrors) -> ColumnTexts:
        kept = list(texts)
        for at, text in enumerate(texts):
            if text and isinstance(values[at], str) and _match_ambiguous_number(text):
                self._add_error(flaws, at, "type", AMBIGUOUS_NUMBER_REASON, values[at])
                kept[at] = None
        return kept

    def _replace_empty_texts(self, texts: ColumnTexts, flaws: RowErrors) -> ColumnTexts:
        """Replace empty texts by the default or None, and add an error if the field is required."""
        field, given = self._field, texts if self._keep_empty else [text or None for text in texts]
        if field.default is not None and not self._keep_null:
            return [field.default if text is None else text for text in given]
        if field.required and not field.filled:
            missing = [index for index, text in enumerate(given) if text is None and index not in flaws.bad_rows]
            self._add_errors(flaws, "required", "must not be empty", missing)
        return given

    def _reject_unstorable_texts(self, texts: ColumnTexts, values: list[Any], flaws: RowErrors) -> ColumnTexts:
        storable = list(texts)
        for index, text in enumerate(texts):
            if text and not is_storable_text(text):
                self._add_error(
                    flaws, index, "type", "contains a character that PostgreSQL cannot store", values[index]
                )
                storable[index] = None
        return storable

    def _add_error(self, flaws: RowErrors, index: int, code: str, reason: str, value: Any) -> None:
        flaws.add(index, RowErrorDetail(self._field.name, code, reason, self._format_value(value)))

    def _add_errors(
        self, flaws: RowErrors, code: str, reason: str, rows: list[int], values: list[Any] | None = None
    ) -> None:
        """Add the same error to many rows; without ``values``, errors show no value."""
        if rows:
            shown = (
                dict.fromkeys(rows) if values is None else {index: self._format_value(values[index]) for index in rows}
            )
            flaws.add_group(RowErrorGroup(self._field.name, code, reason, shown))

    def _format_value(self, value: Any) -> str | None:
        return None if value is None else REDACTED_VALUE if self._field.sensitive else clean_value_for_error(value)


def _normalize_texts_except_none(normalize: Normalizer, texts: ColumnTexts) -> ColumnTexts:
    if None in texts:
        return [None if text is None else normalize(text) for text in texts]
    return list(map(normalize, texts))  # type: ignore[arg-type]


_ASCII_BLANKS = " \t\r\v\f\x1c\x1d\x1e\x1f"  # what str.strip() removes, without the line end


def _strip_texts(texts: ColumnTexts) -> ColumnTexts:
    """Strip whitespace, which has no meaning around a number or a date."""
    joined = join_texts(texts)
    has_line_end = joined.count("\n") >= max(len(texts), 1)  # besides those that join the texts
    if joined.isascii() and not has_line_end and not any(blank in joined for blank in _ASCII_BLANKS):
        return texts
    return [text and text.strip() for text in texts]


def convert_to_file_texts(values: list[Any], *, unescape_formulas: bool) -> ColumnTexts:
    """Return the values of a column without a field as texts, None if empty."""
    texts = [_convert_to_text(value, "text") or None for value in values]
    return [text and unescape_formula(text) for text in texts] if unescape_formulas else texts


def _convert_to_text(value: Any, type_: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        value = Decimal(repr(value))
    if isinstance(value, Decimal):
        is_plain = type_ in ("integer", "text") and abs(value.adjusted()) < PLAIN_NUMBER_MAX_DIGITS
        return format(value, "f") if is_plain else str(value)
    if isinstance(value, int):
        return str(value)
    return encode_json(value)
