"""What all shapes share. Requests know no other fields, and both spellings of a name."""

import base64
import binascii
import json
import re
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Header
from pydantic import AfterValidator, AliasChoices, AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

from tidemill.core.errors import InvalidInput
from tidemill.core.list_pages import check_storable_text
from tidemill.core.status import ItemStatus, JobStatus, parse_item_status, parse_job_status
from tidemill.rest.problems import HttpError

CURSOR_MAX_CHARS = 400
BINARY_SCHEMA = {"type": "string", "format": "binary"}
BINARY_CONTENT = {"schema": BINARY_SCHEMA}  # a body of any bytes, for the OpenAPI document


def build_next_page_field(position: tuple[Any, ...] | None) -> dict[str, str]:
    """The part of a page that leads to the next one: nothing at the end."""
    return {} if position is None else {"next_page": encode_cursor(position)}


def encode_cursor(position: tuple[Any, ...]) -> str:
    """A place in a list as a token."""
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in position]
    text = json.dumps(plain, separators=(",", ":"), default=str)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(token: str | None) -> tuple[Any, ...] | None:
    """The place a token stands for: plain values, whose meaning the list itself checks."""
    if not token:  # absent or empty: from the beginning
        return None
    try:
        raw = base64.b64decode(
            token[:CURSOR_MAX_CHARS] + "=" * (-len(token[:CURSOR_MAX_CHARS]) % 4), altchars=b"-_", validate=True
        )
        place = json.loads(raw, parse_constant=_reject_constant)
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidInput("`after` is not a token of this list") from None
    if not isinstance(place, list) or any(isinstance(value, list | dict) for value in place):
        raise InvalidInput("`after` is not a token of this list")
    return tuple(place)


def _reject_constant(_: str) -> None:
    raise ValueError


_QUOTED_KEY = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,200})"')
_BARE_KEY = re.compile(r"[\x21\x23-\x2b\x2d-\x7e]{1,200}")
IDEMPOTENCY_KEY_PATTERN = f"^({_QUOTED_KEY.pattern}|{_BARE_KEY.pattern})$"  # for the OpenAPI document


def parse_idempotency_key(header: str | None) -> str | None:
    """The key, the same for both spellings; 400 when it is malformed."""
    if header is None:
        return None
    quoted = _QUOTED_KEY.fullmatch(header.strip())
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1])
    if _BARE_KEY.fullmatch(header.strip()):
        return header.strip()
    raise HttpError(400, "Idempotency-Key has 1 to 200 printable characters, in quotes or without")


IDEMPOTENCY_KEY_DESCRIPTION = "Makes a repeated request harmless: 1 to 200 printable characters, in quotes or without"


IDEMPOTENCY_KEY_SCHEMA: dict[str, Any] = {"pattern": IDEMPOTENCY_KEY_PATTERN}


IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description=IDEMPOTENCY_KEY_DESCRIPTION, json_schema_extra=IDEMPOTENCY_KEY_SCHEMA),
]


ITEM_IDS_MAX = 10_000
PAGE_SIZE_MAX = 500
ERROR_CODES_MAX = 100
STATUSES_ALIASES = AliasChoices("statuses", "status")
FROM_ALIASES = AliasChoices("from", "from_")
ColumnsOf = TypeAliasType("ColumnsOf", Literal["result", "input"])
_DATE_REGEX = re.compile(r"\d{4}-\d\d-\d\d")


class RequestModel(BaseModel):
    """Part of a request: page_size and pageSize are the same; what is not known is an error."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(name, to_camel(name))),
        populate_by_name=True,
    )


class QueryModel(BaseModel):
    """Parameters of a list, with our names only: the entrance has translated the others."""

    model_config = ConfigDict(extra="forbid")


def split_at_commas(value: object) -> list[object]:
    """A list, or words between commas, or both."""
    words = value if isinstance(value, list) else [value]
    return [part for word in words for part in (word.split(",") if isinstance(word, str) else [word]) if part != ""]


def _split_error_codes(value: object) -> list[object]:
    """Words between commas; or repeated, and then a comma is part of one: codes are whatever a handler calls them."""
    if isinstance(value, list) and len(value) > 1:
        return value if len(value) > ERROR_CODES_MAX else [word for word in value if word != ""]
    return split_at_commas(value)


def _parse_item_statuses(value: object) -> object:
    """Statuses in our words or the documents'."""
    return _parse_status_list(split_at_commas(value))


def _parse_status_list(value: object) -> object:
    """The same of a list and nothing else."""
    if not isinstance(value, list):
        return value
    return [parse_item_status(word) if isinstance(word, str) else word for word in value]


def _parse_job_statuses(value: object) -> object:
    return [parse_job_status(word) if isinstance(word, str) else word for word in split_at_commas(value)]


def _require_iso_timestamp(value: object) -> object:
    """A number would be taken for seconds since 1970, or for milliseconds."""
    if not isinstance(value, str) or not _DATE_REGEX.match(value):
        raise ValueError("a moment is written as in 2026-11-15T12:00:00Z")
    return value


def _validate_text(value: str) -> str:
    try:
        check_storable_text("this", value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return value


_EMPTY_STRING_SCHEMA = {"type": "string", "const": ""}


def _add_empty_item_to_schema(schema: dict[str, Any]) -> None:
    """An empty word is none at all, as in `?statuses=&after=`."""
    schema["items"] = {"anyOf": [schema["items"], _EMPTY_STRING_SCHEMA]}


def add_empty_choice_to_schema(schema: dict[str, Any]) -> None:
    """The same of one word among some."""
    schema["anyOf"] = [schema["anyOf"][0], _EMPTY_STRING_SCHEMA]


EMPTY_IS_NONE = BeforeValidator(lambda value: None if value == "" else value)  # as in `?kind=&after=`
ShortText = Annotated[str, Field(max_length=200), AfterValidator(_validate_text)]
Timestamp = Annotated[datetime, BeforeValidator(_require_iso_timestamp)]
ITEM_STATUSES_DESCRIPTION = "Items of these; between commas, or repeated"
JOB_STATUSES_DESCRIPTION = "Jobs of these; between commas, or repeated"
ERROR_CODES_DESCRIPTION = "Failures with these codes; between commas, or repeated if they have commas"
JobStatusFilter = Annotated[
    list[JobStatus],
    BeforeValidator(_parse_job_statuses),
    Field(description=JOB_STATUSES_DESCRIPTION, json_schema_extra=_add_empty_item_to_schema),
]
ItemStatusFilter = Annotated[
    list[ItemStatus],
    BeforeValidator(_parse_item_statuses),
    Field(description=ITEM_STATUSES_DESCRIPTION, json_schema_extra=_add_empty_item_to_schema),
]
ErrorCodeFilter = Annotated[
    list[ShortText],
    BeforeValidator(_split_error_codes),
    Field(max_length=ERROR_CODES_MAX, description=ERROR_CODES_DESCRIPTION),
]
ItemStatusList = Annotated[list[ItemStatus], BeforeValidator(_parse_status_list), Field(description="Items of these")]
ErrorCodeList = Annotated[list[ShortText], Field(max_length=ERROR_CODES_MAX, description="Failures with these codes")]
PageSize = Annotated[int, Field(ge=1, le=PAGE_SIZE_MAX, description="Rows of a page")]
AfterCursor = Annotated[str | None, Field(max_length=400, description="`next_page` of the page before")]
KindFilter = Annotated[ShortText | None, EMPTY_IS_NONE, Field(description="Of this kind")]
KEY_FILTER_DESCRIPTION = (
    "With a field at the top of the input that is this, or begins with it when it ends with a star: `AB-1*`"
)
KeyFilter = Annotated[ShortText | None, EMPTY_IS_NONE, Field(description=KEY_FILTER_DESCRIPTION)]
UserFilter = Annotated[str, Field(max_length=100, description="`me`; for admins also `all`, or a user's name or id")]
# No beginnings of ids here: they would tell of the jobs of others.
JOB_NAME_PATTERN = r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[Jj][0-9]{8}_[0-9]{6,}"
JobFilter = Annotated[
    Annotated[str, Field(max_length=64, pattern=f"^({JOB_NAME_PATTERN})$")] | None,
    Field(description="Of this job: its id or key", examples=["J20261115_000777"]),
]
ItemIdText = Annotated[
    str, Field(pattern=r"^[0-9a-fA-F-]{32,36}:[0-9]{1,18}$", examples=["019a8b7c-1d2e-7f00-8000-123456789abc:7"])
]
NextPageToken = Annotated[str | None, Field(description="What to ask with as `after`; absent on the last page")]
