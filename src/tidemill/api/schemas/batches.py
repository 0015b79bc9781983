"""Batches of a job."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from tidemill.api.schemas.base import NextPage

BatchShape = TypeAliasType("BatchShape", Literal["range", "list"])
BatchState = TypeAliasType("BatchState", Literal["ready", "leased", "done", "cancelled"])


class Tallies(BaseModel):
    """Items of a batch that are settled, and attempts that will be repeated."""

    done: int
    not_found: int
    skipped: int
    failed: int
    cancelled: int
    retried: int


class BatchOut(BaseModel):
    """A range of a job's items on their first pass, or a list of them on a later one."""

    id: int
    shape: BatchShape
    state: BatchState
    lo: int
    hi: int
    size: int
    open: int = Field(description="Items that are not settled")
    tallies: Tallies
    codes: dict[str, int] = Field(description="Failures by error code")
    since: datetime
    closed_at: datetime | None
    duration_ms: int | None
    not_before: datetime
    worker: str | None
    isolated: bool = Field(description="Its items run alone: one of them may have killed a process")
    crashes: int
    losses: int


class BatchPage(BaseModel):
    """The newest first."""

    batches: list[BatchOut]
    next_page: NextPage = None
