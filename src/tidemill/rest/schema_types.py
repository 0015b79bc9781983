"""Shared types of request and response models."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

from tidemill.core.errors import InvalidInput, escape_unprintable
from tidemill.core.file_format import ColumnType
from tidemill.core.list_pages import check_storable_text
from tidemill.core.status import ItemStatus, JobStatus, parse_item_status, parse_job_status

BINARY_SCHEMA = {"type": "string", "format": "binary"}
BINARY_CONTENT = {"schema": BINARY_SCHEMA}  # a body of any bytes, for the OpenAPI document


ITEM_IDS_MAX = 10_000
PAGE_SIZE_MAX = 500
ERROR_CODES_MAX = 100
STATUSES_ALIASES = AliasChoices("statuses", "status")
FROM_ALIASES = AliasChoices("from", "from_")
ColumnsOf = TypeAliasType("ColumnsOf", Literal["result", "input"])
_DATE_REGEX = re.compile(r"\d{4}-\d\d-\d\d")


class RequestModel(BaseModel):
    """Part of a request body. It accepts snake_case and camelCase names and rejects unknown fields."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(name, to_camel(name))),
        populate_by_name=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool_as_number(cls, value: object, info: ValidationInfo) -> object:
        """Reject true and false where the field is a number: otherwise they are converted to 1 and 0."""
        if isinstance(value, bool) and info.field_name is not None:
            annotation: Any = cls.model_fields[info.field_name].annotation
            try:
                TypeAdapter(annotation).validate_python(value, strict=True)
            except ValidationError:
                raise ValueError("true and false are not valid here") from None
        return value


class QueryModel(BaseModel):
    """Query parameters in snake_case. The middleware has converted camelCase names; unknown ones are rejected."""

    model_config = ConfigDict(extra="forbid")


def split_at_commas(value: object) -> list[object]:
    """Split a comma-separated value or the values of a list."""
    words = value if isinstance(value, list) else [value]
    return [part for word in words for part in (word.split(",") if isinstance(word, str) else [word]) if part != ""]


def _split_error_codes(value: object) -> list[object]:
    """Split a comma-separated value. Repeated values are not split, because a handler may put commas in its codes."""
    if isinstance(value, list) and len(value) > 1:
        return value if len(value) > ERROR_CODES_MAX else [word for word in value if word != ""]
    return split_at_commas(value)


def _parse_item_statuses(value: object) -> object:
    """Parse statuses and their aliases, comma-separated or repeated."""
    return _parse_item_status_list(split_at_commas(value))


def _parse_item_status_list(value: object) -> object:
    """Parse a list of statuses and their aliases."""
    if not isinstance(value, list):
        return value
    # The error message quotes the word, and pydantic cannot encode unpaired surrogates in a message.
    return [parse_item_status(escape_unprintable(word)) if isinstance(word, str) else word for word in value]


def _parse_job_statuses(value: object) -> object:
    return [parse_job_status(word) if isinstance(word, str) else word for word in split_at_commas(value)]


def _require_iso_timestamp(value: object) -> object:
    """Reject numbers, which pydantic would parse as seconds or milliseconds since 1970."""
    if not isinstance(value, str) or not _DATE_REGEX.match(value):
        raise ValueError("must be a timestamp such as 2026-11-15T12:00:00Z")
    return value


def _check_storable_text(value: str) -> str:
    try:
        check_storable_text("the value", value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return value


_EMPTY_STRING_SCHEMA = {"type": "string", "const": ""}


def _add_empty_item_to_schema(schema: dict[str, Any]) -> None:
    """Allow an empty value, which is ignored, as in `?statuses=&after=`."""
    schema["items"] = {"anyOf": [schema["items"], _EMPTY_STRING_SCHEMA]}


def add_empty_choice_to_schema(schema: dict[str, Any]) -> None:
    """Allow an empty value for an enumeration."""
    schema["anyOf"] = [schema["anyOf"][0], _EMPTY_STRING_SCHEMA]


EMPTY_IS_NONE = BeforeValidator(lambda value: None if value == "" else value)  # as in `?kind=&after=`
ShortText = Annotated[str, Field(max_length=200), AfterValidator(_check_storable_text)]
Timestamp = Annotated[datetime, BeforeValidator(_require_iso_timestamp)]
ITEM_STATUSES_DESCRIPTION = "Only items with these statuses, comma-separated or repeated"
JOB_STATUSES_DESCRIPTION = "Only jobs with these statuses, comma-separated or repeated"
ERROR_CODES_DESCRIPTION = (
    "Only failures with these error codes, comma-separated. Repeat the parameter if a code contains a comma"
)
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
ItemStatusList = Annotated[
    list[ItemStatus], BeforeValidator(_parse_item_status_list), Field(description="Only items with these statuses")
]
ErrorCodeList = Annotated[
    list[ShortText], Field(max_length=ERROR_CODES_MAX, description="Only failures with these error codes")
]
PageSize = Annotated[int, Field(ge=1, le=PAGE_SIZE_MAX, description="Maximum rows per page")]
AfterCursor = Annotated[str | None, Field(max_length=400, description="The `next_page` cursor of the previous page")]
KindFilter = Annotated[ShortText | None, EMPTY_IS_NONE, Field(description="Only this kind")]
KEY_FILTER_DESCRIPTION = (
    "Only items with a top-level input field that equals this value. A value that ends with `*` is a prefix: `AB-1*`"
)
KeyFilter = Annotated[ShortText | None, EMPTY_IS_NONE, Field(description=KEY_FILTER_DESCRIPTION)]
UserFilter = Annotated[str, Field(max_length=100, description="`me`; admins may also use `all` or a user's name or id")]
# No id prefixes here: they would reveal the jobs of other users.
JOB_NAME_PATTERN = r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[Jj][0-9]{8}_[0-9]{6,}"
JobFilter = Annotated[
    Annotated[str, Field(max_length=64, pattern=f"^({JOB_NAME_PATTERN})$")] | None,
    Field(description="Only this job, by id or key", examples=["J20261115_000777"]),
]
ItemIdText = Annotated[
    str, Field(pattern=r"^[0-9a-fA-F-]{32,36}:[0-9]{1,18}$", examples=["019a8b7c-1d2e-7f00-8000-123456789abc:7"])
]
NextPageToken = Annotated[
    str | None, Field(description="Cursor for `after` to get the next page; absent on the last page")
]


ValueType = TypeAliasType("ValueType", ColumnType)


EXAMPLE_JOB_ID = "019a8b7c-1d2e-7f00-8000-123456789abc"
EXAMPLE_WORKER_ID = "mill-1-4021-9f3c1a"
EXAMPLE_CREATED_AT, EXAMPLE_UPDATED_AT = "2026-11-15T09:00:00.000000Z", "2026-11-15T09:00:41.250000Z"
EXAMPLE_NEXT_PAGE = "WyJzZXEiLCIxZDBmNjM0ZSIsN10"
EXAMPLE_COUNTS = {
    "total": 1000,
    "pending": 0,
    "processing": 240,
    "retry_wait": 8,
    "done": 740,
    "not_found": 5,
    "skipped": 0,
    "failed": 7,
    "cancelled": 0,
}
