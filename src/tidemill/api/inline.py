"""Bodies with inputs in them: of many, no objects are made before they are counted.

What is short is parsed as it is. Of a long body the inputs are slices of it, found in a thread and in parts, and each
is parsed when it is its turn: 16 MB of `{}` would be 400 MB of objects, and seconds in which nobody else is answered.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec
import pydantic
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import from_json

from tidemill.api.body import SMALL, is_json
from tidemill.api.problems import WORDS, Refusal
from tidemill.domain.errors import InvalidInput, TooLarge

M = TypeVar("M", bound=pydantic.BaseModel)
SHORT = 64 << 10
WINDOW = 256 << 10
COMMAS_MAX = 1_000_000  # of a part in which no end of an input is found: rows that people have are not like that
ENDS = ((b"},", 8), (b"],", 4), (b'",', 2), (b",", 2))  # where an input may end, and how often that is tried
INPUTS = "inputs"
_UNKNOWN = re.compile(r"unknown field `(.*)`", re.DOTALL)


class Slices(list[Any]):
    """Inputs that are parsed one by one, whenever they are asked for."""

    def __iter__(self) -> Iterator[Any]:
        for place, one in enumerate(super().__iter__(), 1):
            try:
                yield from_json(bytes(one))
            except ValueError as error:
                raise InvalidInput(f"input {place} is not JSON: {error}") from error


async def read(request: Request, model: type[M], *, most: int) -> M:
    """The body as a model whose ``inputs`` are at most so many."""
    if "content-type" in request.headers and not is_json(request.headers):
        sent = request.headers["content-type"].partition(";")[0]
        raise Refusal(415, f"{sent} is not taken here: send application/json")
    body = await request.body()
    found = _whole(model, body) if len(body) <= SHORT else await asyncio.to_thread(_sliced, model, body, most)
    if len(getattr(found, INPUTS) or ()) > most:
        raise _too_many(most)
    return found


def faults_of(error: pydantic.ValidationError, place: str) -> RequestValidationError:
    return RequestValidationError([{**detail, "loc": (place, *detail["loc"])} for detail in error.errors()])


def faults(found: Iterable[tuple[tuple[int | str, ...], str]]) -> RequestValidationError:
    """What is wrong where: of the body, or of the query."""
    return RequestValidationError([{"type": "value_error", "loc": at, "msg": reason} for at, reason in found])


def _whole(model: type[M], body: bytes) -> M:
    try:
        return model.model_validate_json(body)
    except pydantic.ValidationError as error:
        raise faults_of(error, "body") from error


def _sliced(model: type[M], body: bytes, most: int) -> M:
    parts = _parts(model, body)
    inputs = parts.get(INPUTS, b"").strip()
    if not inputs.startswith(b"["):
        return _whole(model, _joined(parts))
    words = _whole(model, _joined(parts | {INPUTS: b"[{}]"}))  # what is wrong with the rest is told first
    return words.model_copy(update={INPUTS: Slices(slices(inputs, most))})


def slices(array: bytes, most: int) -> list[msgspec.Raw]:
    """The elements of a JSON array, unparsed. InvalidInput as soon as there are too many."""
    found: list[msgspec.Raw] = []
    at, end, window = 1, len(array) - 1, WINDOW
    while at < end:
        part = next(_tried(array, at, min(at + window, end)), None)
        if part is None:
            window *= 2
            continue
        at, window = part[0] + 1, WINDOW
        found += part[1]
        if len(found) > most:
            raise _too_many(most)
    return found


def _tried(array: bytes, at: int, limit: int) -> Iterator[tuple[int, list[msgspec.Raw]]]:
    """Where a part that begins at an element may end, and its elements.

    Only between two elements, a part in brackets is JSON: a guess that is wrong is never taken.
    """
    for end in _ends(array, at, limit):
        if array.count(b",", at, end) > COMMAS_MAX:
            raise InvalidInput("there are very many values in one input, or very many inputs: send them as a file")
        try:
            yield end, msgspec.json.decode(b"[" + array[at:end] + b"]", type=list[msgspec.Raw])
        except msgspec.DecodeError:
            continue


def _ends(array: bytes, at: int, limit: int) -> Iterator[int]:
    if limit == len(array) - 1:
        yield limit
    for mark, tries in ENDS:
        found = limit
        for _ in range(tries):
            found = array.rfind(mark, at, found)
            if found < 0:
                break
            yield found + len(mark) - 1


def _parts(model: type[pydantic.BaseModel], body: bytes) -> dict[str, bytes]:
    """Every field of a body that is there, unparsed."""
    try:
        found = msgspec.json.decode(body, type=_shape(model))
    except msgspec.ValidationError as error:  # no object, or an unknown field, of which only the message knows the name
        named = _UNKNOWN.search(str(error))
        at, reason = ("body",) + ((named[1],) if named else ()), WORDS["extra_forbidden"] if named else str(error)
        raise faults([(at, reason)]) from error
    except (msgspec.DecodeError, RecursionError) as error:
        invalid = {"type": "json_invalid", "loc": ("body",), "msg": "", "ctx": {"error": str(error)}}
        raise RequestValidationError([invalid]) from error
    parts = {name: bytes(getattr(found, name)) for name in model.model_fields}
    return {name: text for name, text in parts.items() if text}


@cache
def _shape(model: type[pydantic.BaseModel]) -> type[msgspec.Struct]:
    fields = [(name, msgspec.Raw, msgspec.Raw()) for name in model.model_fields]
    return msgspec.defstruct(model.__name__, fields, forbid_unknown_fields=True)


def _joined(parts: dict[str, bytes]) -> bytes:
    body = b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), text) for name, text in parts.items())
    if len(body) > SMALL:
        raise TooLarge(f"what stands beside the inputs has more than {SMALL} bytes")
    return body


def _too_many(most: int) -> InvalidInput:
    return InvalidInput(f"{INPUTS}: there are more than {most}, which is all that may come as JSON")
