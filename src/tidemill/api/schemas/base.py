"""What all shapes share. Requests know no other fields, and both spellings of a name."""

from typing import Annotated

from pydantic import AliasChoices, AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tidemill.domain.status import ItemStatus, JobStatus, parse_item_status, parse_job_status

ITEMS_MAX = 10_000
PAGE_MAX = 500
EITHER = AliasChoices("statuses", "status")
FROM = AliasChoices("from", "from_")


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


def _words(value: object) -> object:
    """Statuses in our words or the documents'."""
    return [parse_item_status(word) if isinstance(word, str) else word for word in _flat(value)]


def _job_words(value: object) -> object:
    return [parse_job_status(word) if isinstance(word, str) else word for word in _flat(value)]


EMPTY_IS_NONE = BeforeValidator(lambda value: value or None)  # as in `?kind=&after=`
Text = Annotated[str, Field(max_length=200)]
OF_ITEMS = "Items of these; between commas, or repeated"
OF_JOBS = "Jobs of these; between commas, or repeated"
JobStatuses = Annotated[list[JobStatus], BeforeValidator(_job_words), Field(description=OF_JOBS)]
Statuses = Annotated[list[ItemStatus], BeforeValidator(_words), Field(description=OF_ITEMS)]
Codes = Annotated[
    list[Text],
    BeforeValidator(_flat),
    Field(max_length=100, description="Failures with these codes; between commas, or repeated"),
]
PageSize = Annotated[int, Field(ge=1, le=PAGE_MAX, description="Rows of a page")]
After = Annotated[str | None, Field(max_length=400, description="`next_page` of the page before")]
Kind = Annotated[Text | None, EMPTY_IS_NONE, Field(description="Of this kind")]
UserId = Annotated[str, Field(max_length=100, description="`me`; for admins also `all`, or a user's name or id")]
ItemId = Annotated[
    str, Field(pattern=r"^[0-9a-fA-F-]{32,36}:\d{1,18}$", examples=["019a8b7c-1d2e-7f00-8000-123456789abc:7"])
]
NextPage = Annotated[str | None, Field(description="What to ask with as `after`; absent on the last page")]
