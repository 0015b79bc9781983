"""Datasets and their inputs. Inputs are normalized, so equal inputs have the same text and the same file."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any, Literal

from tidemill.core.errors import InvalidInput, format_suggestion
from tidemill.core.file_format import Compression, FileFormat, OutputColumn, OutputFileSpec
from tidemill.core.json_input import JsonObject
from tidemill.core.principal import Role, has_role

FieldType = Literal["text", "integer", "boolean", "date", "yyyymmdd"]
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
"""The path of each problem in a request, and its message."""


class InvalidDistributionInputs(InvalidInput):
    """The inputs are invalid; ``faults`` has at most the first 100 problems."""

    def __init__(self, faults: InputFaults) -> None:
        problems = [
            f"{'/'.join(map(str, path))}: {reason}" if path else reason
            for path, reason in faults[:FAULTS_IN_MESSAGE_MAX]
        ]
        super().__init__("; ".join(problems) + ("; …" if len(faults) > FAULTS_IN_MESSAGE_MAX else ""))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class InputField:
    """A field of an input. ``date`` and ``yyyymmdd`` are stored as 20240202; queries get a ``date`` as a date."""

    name: str
    type: FieldType = "text"
    required: bool = True

    @property
    def is_date(self) -> bool:
        return self.type in ("date", "yyyymmdd")

    def normalize_value(self, value: Any) -> InputValue:
        """Return the value in the form in which it is stored; raise ValueError with the expected type."""
        if value is None or (value == "" and not self.required):
            if self.required:
                raise ValueError("is required")
            return None
        return _VALUE_PARSERS[self.type](value)

    def convert_to_query_parameter(self, value: InputValue) -> Any:
        """Return the value as a query parameter."""
        return parse_yyyymmdd(value) if self.type == "date" and isinstance(value, int) else value


class DistributionInput:
    """One input of a dataset, with all declared fields in declaration order."""

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
        """Parse an input; raise InvalidDistributionInputs with every problem."""
        if not isinstance(given, dict):
            raise InvalidDistributionInputs([((), "must be an object with the fields of the dataset")])
        spelled, faults = map_field_spellings(fields), InputFaults()
        values_by_field: JsonObject = {}
        for name, value in given.items():
            field = spelled.get(name)
            if field is None:
                near = format_suggestion(name[:FIELD_NAME_SHOWN_MAX_CHARS], [one.name for one in fields])
                faults.append(((_clean_name_for_message(name),), f"unknown field{near}"))
                if len(faults) == FAULTS_REPORTED_MAX:
                    break
            elif field in values_by_field:
                faults.append(((name,), f'duplicate field: the input already has "{field}" in another spelling'))
            else:
                values_by_field[field] = value
        normalized: dict[str, InputValue] = {}
        for one in fields:
            try:
                normalized[one.name] = one.normalize_value(values_by_field.get(one.name))
            except ValueError as error:
                faults.append(((one.name,), str(error)))
        if faults:
            raise InvalidDistributionInputs(faults)
        return cls(normalized)


@lru_cache(256)
def map_field_spellings(fields: tuple[InputField, ...]) -> dict[str, str]:
    """Map each accepted spelling, such as ``index_key`` and ``indexKey``, to its field."""
    return {to_camel_case(field.name): field.name for field in fields} | {field.name: field.name for field in fields}


def to_camel_case(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def _clean_name_for_message(name: str) -> str:
    """Truncate a name for an error message, and replace lone surrogates."""
    return name[:FIELD_NAME_SHOWN_MAX_CHARS].encode(errors="replace").decode()


def parse_yyyymmdd(number: int) -> date:
    """Return the date; raise ValueError if the day does not exist."""
    return date(number // 10_000, number // 100 % 100, number % 100)


def _check_text_value(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004  callers catch ValueError
    if not 0 < len(value) <= INPUT_TEXT_MAX_CHARS:
        raise ValueError(f"must have 1 to {INPUT_TEXT_MAX_CHARS} characters")
    if "\x00" in value:
        raise ValueError("must not contain a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must not contain a lone surrogate") from None
    return value


def _parse_integer(value: Any) -> int:
    if isinstance(value, str) and _INPUT_INTEGER_PATTERN.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")  # noqa: TRY004  callers catch ValueError
    if not -_BIGINT_LIMIT <= value < _BIGINT_LIMIT:
        raise ValueError("must fit in 64 bits")
    return value


def _parse_boolean(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004  callers catch ValueError
    return value


def _to_yyyymmdd(value: Any) -> int:
    expected = "must be a date such as 20240202 or 2024-02-02"
    if isinstance(value, str) and _ISO_DATE_PATTERN.fullmatch(value):
        value = value.replace("-", "")
    if isinstance(value, str) and _YYYYMMDD_PATTERN.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not _YYYYMMDD_PATTERN.fullmatch(str(value)):
        raise ValueError(expected)
    try:
        parse_yyyymmdd(value)
    except ValueError:
        raise ValueError(f"{expected}; the day {value} does not exist") from None
    return value


_VALUE_PARSERS: dict[FieldType, Callable[[Any], InputValue]] = {
    "text": _check_text_value,
    "integer": _parse_integer,
    "boolean": _parse_boolean,
    "date": _to_yyyymmdd,
    "yyyymmdd": _to_yyyymmdd,
}


__all__ = ["Dataset", "InputField"]

RowProducer = Callable[..., Any]
"""A function that takes the fields of an input and returns or yields rows as dicts or tuples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Declares how to make files: ``query`` or ``producer`` returns the rows; ``date_field`` determines file reuse."""

    name: str
    fields: tuple[InputField, ...]
    query: str | None = None
    producer: RowProducer | None = None
    columns: tuple[str, ...] = ()  # for rows that are tuples
    date_field: str | None = None
    format: FileFormat = FileFormat.CSV
    compression: Compression = Compression.NONE
    read: tuple[Role, ...] = (Role.ADMIN,)
    version: str = ""  # changed by the user when the rows change for a reason that the query does not show

    @property
    def requirement(self) -> str:
        """What a job with this dataset requires of a worker."""
        return f"dataset:{self.name}"

    @property
    def fingerprint(self) -> str:
        """Identifies the query and the declared version. Files with another fingerprint are not reused."""
        return hashlib.sha256(_encode_canonical_json([self.query, self.version]).encode()).hexdigest()[:32]

    @property
    def field_names(self) -> list[str]:
        return [field.name for field in self.fields]

    def resolve_file_spec(
        self,
        format_: FileFormat | None = None,
        compression: Compression | None = None,
        columns: tuple[OutputColumn, ...] = (),
    ) -> OutputFileSpec:
        """Return the requested or declared format and compression; raise InvalidInput if they cannot be combined."""
        if compression is None:
            compression = self.compression if format_ in (None, self.format) else Compression.NONE
        return OutputFileSpec(format_ or self.format, columns, compression)

    def is_allowed_for(self, role: Role) -> bool:
        return has_role(self.read, role)
