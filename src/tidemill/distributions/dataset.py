"""Datasets and their inputs, which are normalized: equal inputs have the same text and the same file."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any, Literal, get_args

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import Compression, FileFormat, OutputColumn, OutputFileSpec
from tidemill.core.json_input import JsonObject
from tidemill.core.principal import Role
from tidemill.core.suggest import format_suggestion

FieldType = Literal["text", "integer", "boolean", "date", "yyyymmdd"]
FIELD_TYPES: tuple[str, ...] = get_args(FieldType)
INPUT_TEXT_MAX_CHARS = 1_000
FAULTS_IN_MESSAGE_MAX = 3
FAULTS_REPORTED_MAX = 100
FIELD_NAME_SHOWN_MAX_CHARS = 200
_INPUT_INTEGER_PATTERN = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_YYYYMMDD_PATTERN = re.compile(r"[0-9]{8}")
_ISO_DATE_PATTERN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BIGINT_LIMIT = 2**63

_encode_canonical_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

InputValue = str | int | bool | None
InputFaults = list[tuple[tuple[int | str, ...], str]]
"""The path of a mistake in a request, and the reason."""


class InvalidDistributionInputs(InvalidInput):
    """Inputs that are not valid; ``faults`` has the first hundred mistakes."""

    def __init__(self, faults: InputFaults) -> None:
        told = [
            f"{'/'.join(map(str, path))}: {reason}" if path else reason
            for path, reason in faults[:FAULTS_IN_MESSAGE_MAX]
        ]
        super().__init__("; ".join(told) + ("; …" if len(faults) > FAULTS_IN_MESSAGE_MAX else ""))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class InputField:
    """A field of an input. ``date`` and ``yyyymmdd`` are stored as 20240202; a query gets the former as a date."""

    name: str
    type: FieldType = "text"
    required: bool = True

    @property
    def is_date(self) -> bool:
        return self.type in ("date", "yyyymmdd")

    def normalize_value(self, value: Any) -> InputValue:
        """The value as it is stored; ValueError says which type is expected."""
        if value is None or (value == "" and not self.required):
            if self.required:
                raise ValueError("it is missing")
            return None
        return _VALUE_PARSERS[self.type](value)

    def to_query_value(self, value: InputValue) -> Any:
        """The value as a parameter of a query."""
        return parse_yyyymmdd(value) if self.type == "date" and isinstance(value, int) else value


class DistributionInput:
    """One input of a dataset, with all declared fields in their order."""

    __slots__ = ("text", "values")

    def __init__(self, values: Mapping[str, InputValue]) -> None:
        self.values = values
        self.text = _encode_canonical_json(values)

    @property
    def key(self) -> str:
        """The hash that identifies the input's file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def parse(cls, fields: tuple[InputField, ...], given: Any) -> "DistributionInput":
        """The input; InvalidDistributionInputs with every mistake."""
        if not isinstance(given, dict):
            raise InvalidDistributionInputs([((), "an object with the fields of the dataset is wanted")])
        spelled, faults = map_field_spellings(fields), InputFaults()
        said: JsonObject = {}
        for name, value in given.items():
            field = spelled.get(name)
            if field is None:
                near = format_suggestion(name[:FIELD_NAME_SHOWN_MAX_CHARS], [one.name for one in fields])
                faults.append(((_shorten_name(name),), f"there is no such field{near}"))
                if len(faults) == FAULTS_REPORTED_MAX:
                    break
            elif field in said:
                faults.append(((name,), f"{field} is there twice, in two spellings"))
            else:
                said[field] = value
        found: dict[str, InputValue] = {}
        for one in fields:
            try:
                found[one.name] = one.normalize_value(said.get(one.name))
            except ValueError as error:
                faults.append(((one.name,), str(error)))
        if faults:
            raise InvalidDistributionInputs(faults)
        return cls(found)


@lru_cache(256)
def map_field_spellings(fields: tuple[InputField, ...]) -> dict[str, str]:
    """Accepted spelling -> field: ``index_key`` and ``indexKey``."""
    return {to_camel_case(field.name): field.name for field in fields} | {field.name: field.name for field in fields}


def to_camel_case(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def _shorten_name(name: str) -> str:
    """A name for an error message, truncated and without lone surrogates."""
    return name[:FIELD_NAME_SHOWN_MAX_CHARS].encode(errors="replace").decode()


def parse_yyyymmdd(number: int) -> date:
    """The date; ValueError if there is no such day."""
    return date(number // 10_000, number // 100 % 100, number % 100)


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is wanted")  # noqa: TRY004  as for every other mistake
    if not 0 < len(value) <= INPUT_TEXT_MAX_CHARS:
        raise ValueError(f"a text of 1 to {INPUT_TEXT_MAX_CHARS} characters is wanted")
    if "\x00" in value:
        raise ValueError("it has a NUL character in it, which cannot be stored")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("it has half a character in it") from None
    return value


def _parse_integer(value: Any) -> int:
    if isinstance(value, str) and _INPUT_INTEGER_PATTERN.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number is wanted")  # noqa: TRY004  as above
    if not -_BIGINT_LIMIT <= value < _BIGINT_LIMIT:
        raise ValueError("a number of at most 64 bits is wanted")
    return value


def _parse_boolean(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("true or false is wanted")  # noqa: TRY004  as above
    return value


def _to_yyyymmdd(value: Any) -> int:
    wanted = "a date is wanted, as 20240202 or 2024-02-02"
    if isinstance(value, str) and _ISO_DATE_PATTERN.fullmatch(value):
        value = value.replace("-", "")
    if isinstance(value, str) and _YYYYMMDD_PATTERN.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not _YYYYMMDD_PATTERN.fullmatch(str(value)):
        raise ValueError(wanted)
    try:
        parse_yyyymmdd(value)
    except ValueError:
        raise ValueError(f"there is no such day as {value}: {wanted}") from None
    return value


_VALUE_PARSERS: dict[FieldType, Callable[[Any], InputValue]] = {
    "text": _parse_text,
    "integer": _parse_integer,
    "boolean": _parse_boolean,
    "date": _to_yyyymmdd,
    "yyyymmdd": _to_yyyymmdd,
}


__all__ = ["Dataset", "InputField"]

RowProducer = Callable[..., Any]
"""A function of an input's fields that returns or yields rows, as dicts or tuples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Declares files. ``query`` or ``producer`` makes the rows; ``date_field`` decides whether a file is reused."""

    name: str
    fields: tuple[InputField, ...]
    query: str | None = None
    producer: RowProducer | None = None
    columns: tuple[str, ...] = ()  # of rows that are tuples
    date_field: str | None = None
    format: FileFormat = FileFormat.CSV
    compression: Compression = Compression.NONE
    read: tuple[Role, ...] = (Role.ADMIN,)

    @property
    def field_names(self) -> list[str]:
        return [field.name for field in self.fields]

    def resolve_file_spec(
        self,
        format_: FileFormat | None = None,
        compression: Compression | None = None,
        columns: tuple[OutputColumn, ...] = (),
    ) -> OutputFileSpec:
        """The declared or the requested form of the file; InvalidInput if format and compression cannot be combined."""
        if compression is None:
            compression = self.compression if format_ in (None, self.format) else Compression.NONE
        return OutputFileSpec(format_ or self.format, columns, compression)

    def is_allowed_for(self, role: Role) -> bool:
        return role in self.read or (role is Role.ADMIN and bool(self.read))
