"""The states of a watched file, and how the result of its job changes them."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

FILE_SIZE_MAX_BYTES, FILE_VERSION_MAX_CHARS = (1 << 63) - 1, 200
INVALID_SIZE_MESSAGE = "its server gives a size that cannot be"


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


OPEN_FILE_STATES = (FileState.SEEN, FileState.TAKEN, FileState.SUBMITTED, FileState.PERSISTED, FileState.REJECTED)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as a listing has it. ``version`` changes when the file does: its time, or its tag."""

    path: str
    size: int | None
    version: str
    refusal_reason: str | None = None  # why it cannot be taken, whatever its name
    changed_at: float | None = field(default=None, compare=False)  # when, in seconds of the source's clock, if it says

    def __post_init__(self) -> None:
        """Servers say what they like: what no row has room for is no size, and a long tag is kept as its digest."""
        if self.size is not None and self.size > FILE_SIZE_MAX_BYTES:
            object.__setattr__(self, "size", None)
            object.__setattr__(self, "refusal_reason", self.refusal_reason or INVALID_SIZE_MESSAGE)
        if len(self.version) > FILE_VERSION_MAX_CHARS or not self.version.isprintable():
            digest = hashlib.sha256(self.version.encode("utf-8", "surrogatepass")).hexdigest()
            object.__setattr__(self, "version", digest)

    def is_same_version(self, other: "ListedFile") -> bool:
        return (self.size, self.version) == (other.size, other.version)

    def is_older_than(self, other: "ListedFile") -> bool:
        """Whether both times are known and this file is older."""
        return self.changed_at is not None and other.changed_at is not None and self.changed_at < other.changed_at


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
    def entry(self) -> ListedFile:
        return ListedFile(self.path, self.size, self.version)


UNFINISHED_FILE_STATES = (*OPEN_FILE_STATES, FileState.FAILED)  # what failed may be tried once more


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """As much of a file that was found before as is needed to tell whether it is news."""

    id: int
    path: str
    size: int | None
    version: str
    state: str
    watch: str


@dataclass(frozen=True, slots=True)
class ListingChanges:
    """What a listing has that was not known: new files, and files that wait in another version, or had vanished."""

    added: list[ListedFile]
    changed: list[tuple[RecordedFile, ListedFile]]


def compare_listing(entries: Sequence[ListedFile], known: Iterable[RecordedFile]) -> ListingChanges:
    """A file is known by path, size and version; of those that wait there is one for each path."""
    versions, waiting = {}, {}
    for one in known:
        versions[one.path, one.size, one.version] = one
        if one.state == FileState.SEEN:
            waiting[one.path] = one
    added, changed = [], []
    for entry in entries:
        same, waits = versions.get((entry.path, entry.size, entry.version)), waiting.get(entry.path)
        if same is None and waits is None:
            added.append(entry)
        elif same is None and waits is not None:
            changed.append((waits, entry))
        elif same is not None and waits is None and same.state == FileState.GONE:
            changed.append((same, entry))
    return ListingChanges(added, changed)


def find_orphaned_file_ids(known: Iterable[RecordedFile], declared: Collection[str]) -> list[int]:
    """Unfinished files whose watch is not declared any more, because it was renamed or removed."""
    return [one.id for one in known if one.watch not in declared and one.state in UNFINISHED_FILE_STATES]


@dataclass(frozen=True, slots=True)
class FileJobState:
    """What is known of the job of a file; it may be deleted."""

    exists: bool
    ingest_done: bool = False
    closed_as: str | None = None
    failure_reason: str | None = None


def decide_file_state(facts: FileJobState) -> tuple[FileState, str | None] | None:
    """Persisted when all its rows are stored, whatever becomes of them; rejected if they never will be."""
    if not facts.exists:
        return FileState.REJECTED, "its job was deleted before all its rows were stored"
    if facts.ingest_done:
        return FileState.PERSISTED, None
    if facts.closed_as is None:
        return None
    reason = facts.failure_reason or f"its job was {facts.closed_as} before all its rows were stored"
    return FileState.REJECTED, reason


def build_idempotency_key(file: WatchFile) -> str:
    """The idempotency key of the file's job: every process and every attempt builds the same."""
    version = "\0".join((file.source, file.path, str(file.size), file.version, str(file.tries)))
    return f"watch {hashlib.sha256(version.encode()).hexdigest()}"
