"""Inputs: from what somebody sent to what is kept, the same text whenever the same is meant."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any, Literal, get_args

from tidemill.domain.declaration.suggest import did_you_mean
from tidemill.domain.errors import InvalidInput

FieldType = Literal["text", "integer", "boolean", "date", "yyyymmdd"]
FIELD_TYPES: tuple[str, ...] = get_args(FieldType)
TEXT_MAX = 1_000
TOLD = 3  # faults in a sentence
FAULTS_MAX = 100  # in an answer
NAME_TOLD = 200  # characters of a name that nobody knows
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_DIGITS = re.compile(r"[0-9]{8}")
_DASHES = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BIGINT = 2**63

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Plain = str | int | bool | None
Faults = list[tuple[tuple[int | str, ...], str]]
"""Where in a request, and what is wrong there."""


class InvalidInputs(InvalidInput):
    """Inputs that cannot be taken; ``faults`` says where and why, of the first hundred or so."""

    def __init__(self, faults: Faults) -> None:
        told = [f"{'/'.join(map(str, path))}: {reason}" if path else reason for path, reason in faults[:TOLD]]
        super().__init__("; ".join(told) + ("; …" if len(faults) > TOLD else ""))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class InputField:
    """A ``date`` and a ``yyyymmdd`` are both kept as 20240202; a query is given the one as a date, the other so."""

    name: str
    type: FieldType = "text"
    required: bool = True

    @property
    def is_date(self) -> bool:
        return self.type in ("date", "yyyymmdd")

    def read(self, value: Any) -> Plain:
        """The value as it is kept; ValueError says what was wanted."""
        if value is None or (value == "" and not self.required):
            if self.required:
                raise ValueError("it is missing")
            return None
        return _READERS[self.type](value)

    def bound(self, value: Plain) -> Any:
        """What a query is given."""
        return day_of(value) if self.type == "date" and isinstance(value, int) else value


class Input:
    """One input of a dataset: the declared fields, all of them, in their order."""

    __slots__ = ("text", "values")

    def __init__(self, values: Mapping[str, Plain]) -> None:
        self.values = values
        self.text = _encode(values)

    @property
    def key(self) -> str:
        """What files are found again by."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def read(cls, fields: tuple[InputField, ...], given: Any) -> "Input":
        """InvalidInputs with everything that is wrong with it."""
        if not isinstance(given, dict):
            raise InvalidInputs([((), "an object with the fields of the dataset is wanted")])
        spelled, faults = spellings(fields), Faults()
        said: dict[str, Any] = {}
        for name, value in given.items():
            field = spelled.get(name)
            if field is None:
                near = did_you_mean(name[:NAME_TOLD], [one.name for one in fields])
                faults.append(((_told(name),), f"there is no such field{near}"))
                if len(faults) == FAULTS_MAX:
                    break
            elif field in said:
                faults.append(((name,), f"{field} is there twice, in two spellings"))
            else:
                said[field] = value
        found: dict[str, Plain] = {}
        for one in fields:
            try:
                found[one.name] = one.read(said.get(one.name))
            except ValueError as error:
                faults.append(((one.name,), str(error)))
        if faults:
            raise InvalidInputs(faults)
        return cls(found)


@lru_cache(256)
def spellings(fields: tuple[InputField, ...]) -> dict[str, str]:
    """index_key, and indexKey too."""
    return {camel(field.name): field.name for field in fields} | {field.name: field.name for field in fields}


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def _told(name: str) -> str:
    """A name as somebody sent it, cut, and without halves of characters."""
    return name[:NAME_TOLD].encode(errors="replace").decode()


def day_of(number: int) -> date:
    """ValueError if there is no such day."""
    return date(number // 10_000, number // 100 % 100, number % 100)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is wanted")  # noqa: TRY004  as for every other mistake
    if not 0 < len(value) <= TEXT_MAX:
        raise ValueError(f"a text of 1 to {TEXT_MAX} characters is wanted")
    if "\x00" in value:
        raise ValueError("it has a NUL character in it, which cannot be stored")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("it has half a character in it") from None
    return value


def _integer(value: Any) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number is wanted")  # noqa: TRY004  as above
    if not -_BIGINT <= value < _BIGINT:
        raise ValueError("a number of at most 64 bits is wanted")
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("true or false is wanted")  # noqa: TRY004  as above
    return value


def _day(value: Any) -> int:
    wanted = "a date is wanted, as 20240202 or 2024-02-02"
    if isinstance(value, str) and _DASHES.fullmatch(value):
        value = value.replace("-", "")
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not _DIGITS.fullmatch(str(value)):
        raise ValueError(wanted)
    try:
        day_of(value)
    except ValueError:
        raise ValueError(f"there is no such day as {value}: {wanted}") from None
    return value


_READERS: dict[FieldType, Callable[[Any], Plain]] = {
    "text": _text,
    "integer": _integer,
    "boolean": _boolean,
    "date": _day,
    "yyyymmdd": _day,
}
