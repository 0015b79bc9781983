"""Messages that are no hints."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType

from tidemill.api.schemas.base import After, NextPage, PageSize, Query

MessageSource = TypeAliasType("MessageSource", Literal["received", "refused"])


class Quarantined(BaseModel):
    """One message. Nothing is lost with it: what is true stands in the database, and workers look there."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: datetime
    source: MessageSource = Field(description="It came so, or the broker would not take it")
    reason: str = Field(description="Every mistake in it")
    message: str = Field(description="Its first 4 kB")
    size: int = Field(description="In bytes")
    job_id: UUID | None = Field(description="Whose hint it was, if it was one")
    worker: str | None = Field(description="Who put it here")


class QuarantinePage(BaseModel):
    """The newest first."""

    items: list[Quarantined]
    next_page: NextPage = None


class QuarantineQuery(Query):
    page_size: PageSize = 100
    after: After = None


class Cleared(BaseModel):
    removed: int
