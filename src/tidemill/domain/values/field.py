"""One field's reader: normalize, see what is missing, read the type, check the rules."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from tidemill.domain.errors import InvalidInput
from tidemill.domain.formula import restore
from tidemill.domain.resource import Field, holds_text, may_be_empty
from tidemill.domain.values.arrays import read_array
from tidemill.domain.values.columns import Texts, join
from tidemill.domain.values.documents import as_json
from tidemill.domain.values.flaws import Flaw, Flaws
from tidemill.domain.values.problem import REDACTED, Problem, is_storable, shown
from tidemill.domain.values.rules import rules_of
from tidemill.domain.values.types import READERS

Normalizer = Callable[[str], str]
_BUILT_IN: dict[str, Normalizer] = {
    "trim": str.strip,
    "collapse": lambda text: " ".join(text.split()),
    "lower": str.lower,
    "upper": str.upper,
}
_STRUCTURED = ("json", "array")
WIDEST = 400  # digits that a number is written out with; beyond it, with an exponent
_FREE = ("text", "other", *_STRUCTURED)  # types whose text may hold any character


class FieldReader:
    """Reads the values of one field, all rows of a batch at a time."""

    def __init__(
        self,
        field: Field,
        normalizers: Mapping[str, Normalizer] | None = None,
        *,
        restores: bool = False,
        keeps_empty: bool = False,
        keeps_nothing: bool = False,
        documents: bool = False,
    ) -> None:
        """Reads as an import says.

        ``restores``: texts were kept from being run by a spreadsheet. ``keeps_empty``: empty text is a value.
        ``keeps_nothing``: no default stands for what is not there.
        ``documents``: a text in a field of JSON is a document, and not how one is written.
        """
        self._documents = documents and field.type == "json"
        self._restores = restores and holds_text(field.type, field.sql_type)
        self._keeps_empty = keeps_empty and may_be_empty(field)
        self._keeps_nothing = keeps_nothing
        self._field = field
        known = _BUILT_IN | dict(normalizers or {})
        missing = [name for name in field.normalize if name not in known]
        if missing:
            raise InvalidInput(
                f"field {field.name!r} wants a normalizer {missing[0]!r}, which nobody has declared here"
            )
        self._normalize = [known[name] for name in field.normalize]
        self._read = read_array if field.type == "array" else READERS[field.type]
        self._rules = rules_of(field)

    def read(self, values: list[Any]) -> tuple[Texts, Flaws]:
        """The text form of every value; None where it is missing or wrong."""
        flaws = Flaws()
        texts, wrong = self._read(self._field, self._prepared(values, flaws))
        for index, reason in wrong.items():
            hides = self._field.sensitive and self._field.type == "array"  # whose reasons show elements
            self._add(flaws, index, "type", "not a list of its type" if hides else reason, values[index])
            texts[index] = None
        for rule in self._rules:
            for code, reason, rows in rule(texts):
                self._add_all(flaws, code, reason, rows, values)
        return texts, flaws

    def keys(self, values: list[Any]) -> Texts:
        """The text form alone, as far as it takes to tell equal values from others: no rule is looked at."""
        texts = self._prepared(values, Flaws())
        if self._field.type in ("text", "uuid"):
            return texts
        texts, wrong = self._read(self._field, texts)
        for index in wrong:
            texts[index] = None
        return texts

    def _prepared(self, values: list[Any], flaws: Flaws) -> Texts:
        """Texts, normalized, None where one is missing."""
        texts = self._texts(values, flaws)
        if self._restores:
            texts = [text and restore(text) for text in texts]
        for normalize in self._normalize:
            texts = self._normalized(normalize, texts, values, flaws)
        if self._field.type not in _FREE:
            texts = _stripped(texts)
        if None in texts or ("" in texts and not self._keeps_empty):
            texts = self._without_empty(texts, flaws)
        if self._field.type in _FREE and not is_storable(join(texts)):
            texts = self._without_unstorable(texts, values, flaws)
        return texts

    def _texts(self, values: list[Any], flaws: Flaws) -> Texts:
        if self._documents:
            return [None if value is None else as_json(value) for value in values]
        if set(map(type, values)) <= {str}:
            return values
        keep = self._field.type in _STRUCTURED
        texts: Texts = []
        for index, value in enumerate(values):
            if isinstance(value, dict | list) and not keep:
                self._add(flaws, index, "type", "a single value is wanted here", as_json(value))
                texts.append(None)
            else:
                texts.append(_text(value, self._field.type))
        return texts

    def _normalized(self, normalize: Normalizer, texts: Texts, values: list[Any], flaws: Flaws) -> Texts:
        """A user's own normalizer may not like a text: that is a problem of its row."""
        try:
            return _each(normalize, texts)
        except Exception:  # noqa: BLE001  whatever it raises
            found: Texts = []
        for index, text in enumerate(texts):
            try:
                found += _each(normalize, [text])
            except Exception as error:  # noqa: BLE001
                reason = "cannot be normalized" if self._field.sensitive else f"cannot be normalized: {error}"
                self._add(flaws, index, "type", reason, values[index])
                found.append(None)
        return found

    def _without_empty(self, texts: Texts, flaws: Flaws) -> Texts:
        """Nothing, for an empty text: or what stands for it."""
        field, given = self._field, texts if self._keeps_empty else [text or None for text in texts]
        if field.default is not None and not self._keeps_nothing:
            return [field.default if text is None else text for text in given]
        if field.required and not field.filled:
            missing = [index for index, text in enumerate(given) if text is None and index not in flaws.rows]
            self._add_all(flaws, "required", "must not be empty", missing)
        return given

    def _without_unstorable(self, texts: Texts, values: list[Any], flaws: Flaws) -> Texts:
        found = list(texts)
        for index, text in enumerate(texts):
            if text and not is_storable(text):
                self._add(flaws, index, "type", "a character that PostgreSQL cannot store", values[index])
                found[index] = None
        return found

    def _add(self, flaws: Flaws, index: int, code: str, reason: str, value: Any) -> None:
        flaws.add(index, Problem(self._field.name, code, reason, self._told(value)))

    def _add_all(self, flaws: Flaws, code: str, reason: str, rows: list[int], values: list[Any] | None = None) -> None:
        """The same of many rows; without ``values`` there is nothing to show."""
        if rows:
            told = dict.fromkeys(rows) if values is None else {index: self._told(values[index]) for index in rows}
            flaws.add_all(Flaw(self._field.name, code, reason, told))

    def _told(self, value: Any) -> str | None:
        return None if value is None else REDACTED if self._field.sensitive else shown(value)


def _each(normalize: Normalizer, texts: Texts) -> Texts:
    if None in texts:
        return [None if text is None else normalize(text) for text in texts]
    return list(map(normalize, texts))  # type: ignore[arg-type]


def _stripped(texts: Texts) -> Texts:
    """Blanks around a number or a date mean nothing."""
    joined = join(texts)
    if joined.isascii() and " " not in joined and "\t" not in joined and "\r" not in joined:
        return texts
    return [text and text.strip() for text in texts]


def _text(value: Any, type_: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        value = Decimal(repr(value))
    if isinstance(value, Decimal):
        is_plain = type_ in ("integer", "text") and abs(value.adjusted()) < WIDEST
        return format(value, "f") if is_plain else str(value)
    if isinstance(value, int):
        return str(value)
    return as_json(value)
