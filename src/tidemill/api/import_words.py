"""The words of an import: from a JSON body, from a form or from a query, checked alike."""

from typing import Any, TypeVar

import httpx2
import msgspec
import pydantic
from pydantic.alias_generators import to_snake

from tidemill.api.inline import faults, faults_of
from tidemill.api.schemas.imports import ImportIn, LayoutIn
from tidemill.connectors.layout import checked
from tidemill.connectors.remote.links import bare
from tidemill.domain.importing import ImportRequest

M = TypeVar("M", bound=LayoutIn)
LAYOUT = tuple(LayoutIn.model_fields)
JSON_WORDS = ("mapping", "policy")
NOT_BESIDE_A_FILE = ("source",)


def from_json(model: type[M], body: bytes) -> M:
    try:
        return model.model_validate_json(body)
    except pydantic.ValidationError as error:
        raise faults_of(error, "body") from error


def from_fields(model: type[M], fields: dict[str, str], place: str) -> M:
    """The words beside a file; what is an object is JSON there, and a list is words between commas, or JSON."""
    values: dict[str, Any] = {to_snake(name): text for name, text in fields.items() if name != "filename"}
    unknown = sorted(values.keys() - set(model.model_fields) | values.keys() & set(NOT_BESIDE_A_FILE))
    if unknown:
        raise faults([((place, name), f"there is no field {name!r} beside a file") for name in unknown])
    for name in JSON_WORDS:
        if name in values:
            values[name] = _object((place, name), values[name])
    if values.get("sheet", "").isdecimal():
        values["sheet"] = int(values["sheet"])
    if "key" in values:
        values["key"] = _list((place, "key"), values["key"])
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise faults_of(error, place) from error


def layout_of(asked: LayoutIn) -> dict[str, Any]:
    """What was said of the layout, in our own words."""
    said = {name: value for name in LAYOUT if (value := getattr(asked, name)) is not None}
    said |= {"keep_empty": True} if getattr(asked, "keep_empty", False) else {}
    return checked(said)


def request_of(asked: ImportIn) -> ImportRequest:
    return ImportRequest(
        mode=asked.mode,
        validate_only=asked.validate_only,
        duplicates=asked.duplicates,
        mapping=asked.mapping,
        key=tuple(asked.key),
        spreadsheet_safe=asked.spreadsheet_safe,
        keep_empty=asked.keep_empty,
    )


def words_of(asked: ImportIn) -> dict[str, Any]:
    """What is asked for, to be kept and shown, and to be compared when its key comes again."""
    said = {} if asked.source is None else asked.source.model_dump(exclude_none=True)
    if "url" in said:
        said["url"] = bare(httpx2.URL(said["url"]))
    source = {"source": said} if said else {}
    return {
        "resource": asked.resource,
        "layout": layout_of(asked),
        "policy": policy_of(asked),
        "priority": asked.priority,
        **msgspec.to_builtins(request_of(asked)),
        "key": asked.key,  # a list, as JSON gives it back
        **source,
    }


def policy_of(asked: ImportIn) -> dict[str, Any]:
    return asked.policy.model_dump(exclude_none=True)


def _object(at: tuple[str, str], text: str) -> Any:
    try:
        return pydantic.TypeAdapter(dict[str, Any]).validate_json(text)
    except pydantic.ValidationError as error:
        raise faults([(at, f"it is not a JSON object: {error.errors()[0]['msg']}")]) from error


def _list(at: tuple[str, str], text: str) -> list[Any]:
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return pydantic.TypeAdapter(list[Any]).validate_json(text)
    except pydantic.ValidationError as error:
        raise faults([(at, f"it is not a list: {error.errors()[0]['msg']}")]) from error
