"""Watches, their files, and scans of them."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictBool

from tidemill.api.schemas.base import EMPTY_IS_NONE, After, Asked, NextPage, PageSize, Query, or_empty
from tidemill.domain.watching import FileState

Name = Annotated[str, Field(max_length=63, pattern=r"^[a-z][a-z0-9_-]*$", examples=["nightly"])]


class TaskOut(BaseModel):
    """What becomes of a file: a job of a kind, or an import into a resource."""

    kind: str
    resource_type: str | None = None
    mode: str | None = None


class SourceOut(BaseModel):
    """A watch, and how it is."""

    name: str
    source: str = Field(description="Where files come from; never with a secret")
    scheme: str = Field(description="folder, s3, gs, az, ftp, ftps, sftp or http")
    pattern: list[str]
    task: TaskOut
    owner: str
    every_s: float | None = Field(description="Seconds between scans; null: only when somebody asks")
    marker: str | None = Field(description="The ending of the file that says that another one is whole")
    moves: bool = Field(description="Whether files are put away afterwards, or only remembered")
    scanning: bool = False
    last_scan_at: datetime | None = None
    next_scan_at: datetime | None = None
    found: int = Field(0, description="Files that the last scan found")
    submitted: int = Field(0, description="Files that it made jobs of")
    problem: str | None = Field(None, description="What is wrong with it, if anything is")
    files: dict[FileState, int] = Field(default_factory=dict, description="How many files are in which state")
    links: dict[str, str]


class SourceList(BaseModel):
    sources: list[SourceOut]


class FileOut(BaseModel):
    """A file in one version, and what has become of it."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    path: str
    size: int | None
    version: str = Field(description="Its time, or its tag: what changes when it does")
    state: FileState
    status: str | None = Field(
        validation_alias=AliasChoices("note", "status"), description="Why it is so, or what it waits for"
    )
    job_id: UUID | None
    job_key: str | None = None
    moved_to: str | None
    tries: int = Field(description="How often it was tried again after it had failed")
    seen_at: datetime = Field(description="When it was first seen in this version")
    updated_at: datetime = Field(validation_alias=AliasChoices("at", "updated_at"))


class FilePage(BaseModel):
    """The newest change first."""

    files: list[FileOut]
    next_page: NextPage = None


class FileQuery(Query):
    state: Annotated[
        FileState | None, EMPTY_IS_NONE, Field(description="Files in this state", json_schema_extra=or_empty)
    ] = None
    page_size: PageSize = 100
    after: After = None


class ScanIn(Asked):
    """Which watch to scan now; without a name, all of yours."""

    name: Name | None = None
    again: StrictBool = Field(False, description="Files that failed, and are there still or again, are tried once more")


class ScanOut(BaseModel):
    """What a scan of a watch came to."""

    name: str
    found: int
    submitted: int
    problem: str | None
    files: list[FileOut] = Field(description="Those that it changed, and those that wait; 500 at most")


class ScanList(BaseModel):
    scans: list[ScanOut]
