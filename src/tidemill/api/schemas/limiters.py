"""Limiters."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, StrictFloat

from tidemill.api.schemas.base import Asked


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is wanted")  # noqa: TRY004  what pydantic takes for a fault of the request
    return value


Whole = Annotated[int, BeforeValidator(_no_truth)]


class LimiterOut(BaseModel):
    """How often, and how many at a time, everybody together may call somebody; and what it is at."""

    name: str
    rate: float | None = Field(description="Starts a second; none if they are not counted")
    current_rate: float | None = Field(description="The same, as refusals have left it")
    burst: int
    concurrency: int | None = Field(description="At a time; none if they are not counted")
    adaptive: bool = Field(description="Whether refusals slow it down")
    in_use: int = Field(description="Places that processes have now")
    waiting: int = Field(description="Items in hand of workers that wait for it, as last heard")
    blocked_until: datetime | None = Field(description="Nobody begins before: whoever is called said so")
    members: int = Field(description="Domains, or whatever it counts each by itself")
    blocked_members: int
    taken: int = Field(description="Permits so far")
    refused: int = Field(description="Refusals so far")
    changed: bool = Field(description="An admin changed it since it was declared")
    used_at: datetime


class LimiterIn(Asked):
    """What to change; the rest stays."""

    rate: StrictFloat | str | None = Field(None, description='As in `"5/s"`, `"300/min"`, or a number a second')
    burst: Whole | None = None
    concurrency: Whole | None = None


class UnblockIn(Asked):
    """Of which member; without it, the limiter and all of them."""

    key: str | None = Field(None, max_length=255)
