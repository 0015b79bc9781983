"""A file of a watch: as it is found, and what has become of it."""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

LARGEST, LONGEST = (1 << 63) - 1, 200
NO_SIZE = "its server gives a size that cannot be"


class FileState(StrEnum):
    SEEN = "seen"  # it waits until it is whole
    TAKEN = "taken"  # it is being fetched and submitted
    SUBMITTED = "submitted"  # there is a job, which has not read all of it yet
    PERSISTED = "persisted"  # all its rows are stored; it is to be moved away
    PROCESSED = "processed"  # and that is done
    REJECTED = "rejected"  # it cannot be read; it is to be moved away
    FAILED = "failed"  # and that is done
    REFUSED = "refused"  # it is nothing that could be taken, and stays where it is
    GONE = "gone"  # it vanished before it was taken


OPEN = (FileState.SEEN, FileState.TAKEN, FileState.SUBMITTED, FileState.PERSISTED, FileState.REJECTED)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as a listing has it. ``version`` changes when the file does: its time, or its tag."""

    path: str
    size: int | None
    version: str
    refused: str | None = None  # why it cannot be taken, whatever its name
    changed: float | None = field(default=None, compare=False)  # when, in seconds of the source's clock, if it says

    def __post_init__(self) -> None:
        """Servers say what they like: what no row has room for is no size, and a long tag is kept as its digest."""
        if self.size is not None and self.size > LARGEST:
            object.__setattr__(self, "size", None)
            object.__setattr__(self, "refused", self.refused or NO_SIZE)
        if len(self.version) > LONGEST or not self.version.isprintable():
            digest = hashlib.sha256(self.version.encode("utf-8", "surrogatepass")).hexdigest()
            object.__setattr__(self, "version", digest)

    def is_like(self, other: "Entry") -> bool:
        return (self.size, self.version) == (other.size, other.version)

    def is_older(self, other: "Entry") -> bool:
        """Surely older: of what nobody knows the time, nothing is sure."""
        return self.changed is not None and other.changed is not None and self.changed < other.changed


@dataclass(frozen=True, slots=True)
class WatchFile:
    """A file that was found."""

    id: int
    watch: str
    source: str
    path: str
    size: int | None
    version: str
    tries: int
    state: FileState
    note: str | None
    owner_id: int | None
    file_id: str | None
    job_id: UUID | None
    moved_to: str | None
    seen_at: datetime
    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", FileState(self.state))

    @property
    def entry(self) -> Entry:
        return Entry(self.path, self.size, self.version)
