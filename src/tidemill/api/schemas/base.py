"""What all shapes share. Requests know no other fields, and both spellings of a name."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

from tidemill.domain.errors import InvalidInput
from tidemill.domain.page import check_text
from tidemill.domain.status import ItemStatus, JobStatus, parse_item_status, parse_job_status

ITEMS_MAX = 10_000
PAGE_MAX = 500
CODES_MAX = 100
EITHER = AliasChoices("statuses", "status")
FROM = AliasChoices("from", "from_")
ColumnsOf = TypeAliasType("ColumnsOf", Literal["result", "input"])
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class Asked(BaseModel):
    """Part of a request: page_size and pageSize are the same; what is not known is an error."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(name, to_camel(name))),
        populate_by_name=True,
    )


class Query(BaseModel):
    """Parameters of a list, with our names only: the entrance has translated the others."""

    model_config = ConfigDict(extra="forbid")


def _flat(value: object) -> list[object]:
    """A list, or words between commas, or both."""
    words = value if isinstance(value, list) else [value]
    return [part for word in words for part in (word.split(",") if isinstance(word, str) else [word]) if part != ""]


def _codes(value: object) -> list[object]:
    """Words between commas; or repeated, and then a comma is part of one: codes are whatever a handler calls them."""
    if isinstance(value, list) and len(value) > 1:
        return value if len(value) > CODES_MAX else [word for word in value if word != ""]
    return _flat(value)


def _words(value: object) -> object:
    """Statuses in our words or the documents'."""
    return _listed(_flat(value))


def _listed(value: object) -> object:
    """The same of a list and nothing else."""
    if not isinstance(value, list):
        return value
    return [parse_item_status(word) if isinstance(word, str) else word for word in value]


def _job_words(value: object) -> object:
    return [parse_job_status(word) if isinstance(word, str) else word for word in _flat(value)]


def _moment(value: object) -> object:
    """A number would be taken for seconds since 1970, or for milliseconds."""
    if not isinstance(value, str) or not _DATE.match(value):
        raise ValueError("a moment is written as in 2026-11-15T12:00:00Z")
    return value


def _text(value: str) -> str:
    try:
        check_text("this", value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return value


_EMPTY = {"type": "string", "const": ""}


def _or_none(schema: dict[str, Any]) -> None:
    """An empty word is none at all, as in `?statuses=&after=`."""
    schema["items"] = {"anyOf": [schema["items"], _EMPTY]}


def or_empty(schema: dict[str, Any]) -> None:
    """The same of one word among some."""
    schema["anyOf"] = [schema["anyOf"][0], _EMPTY]


EMPTY_IS_NONE = BeforeValidator(lambda value: None if value == "" else value)  # as in `?kind=&after=`
Text = Annotated[str, Field(max_length=200), AfterValidator(_text)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
OF_ITEMS = "Items of these; between commas, or repeated"
OF_JOBS = "Jobs of these; between commas, or repeated"
OF_CODES = "Failures with these codes; between commas, or repeated if they have commas"
JobStatuses = Annotated[
    list[JobStatus], BeforeValidator(_job_words), Field(description=OF_JOBS, json_schema_extra=_or_none)
]
Statuses = Annotated[list[ItemStatus], BeforeValidator(_words), Field(description=OF_ITEMS, json_schema_extra=_or_none)]
Codes = Annotated[
    list[Text],
    BeforeValidator(_codes),
    Field(max_length=CODES_MAX, description=OF_CODES),
]
StatusList = Annotated[list[ItemStatus], BeforeValidator(_listed), Field(description="Items of these")]
CodeList = Annotated[list[Text], Field(max_length=CODES_MAX, description="Failures with these codes")]
PageSize = Annotated[int, Field(ge=1, le=PAGE_MAX, description="Rows of a page")]
After = Annotated[str | None, Field(max_length=400, description="`next_page` of the page before")]
Kind = Annotated[Text | None, EMPTY_IS_NONE, Field(description="Of this kind")]
OF_KEY = "With a field at the top of the input that is this, or begins with it when it ends with a star: `AB-1*`"
Key = Annotated[Text | None, EMPTY_IS_NONE, Field(description=OF_KEY)]
UserId = Annotated[str, Field(max_length=100, description="`me`; for admins also `all`, or a user's name or id")]
# No beginnings of ids here: they would tell of the jobs of others.
JOB_NAME = r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[Jj][0-9]{8}_[0-9]{6,}"
OfJob = Annotated[
    Annotated[str, Field(max_length=64, pattern=f"^({JOB_NAME})$")] | None,
    Field(description="Of this job: its id or key", examples=["J20261115_000777"]),
]
ItemId = Annotated[
    str, Field(pattern=r"^[0-9a-fA-F-]{32,36}:[0-9]{1,18}$", examples=["019a8b7c-1d2e-7f00-8000-123456789abc:7"])
]
NextPage = Annotated[str | None, Field(description="What to ask with as `after`; absent on the last page")]
