"""What becomes of a file by what became of its job."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tidemill.domain.watching.file import OPEN, Entry, FileState, WatchFile

UNFINISHED = (*OPEN, FileState.FAILED)  # what failed may be tried once more


@dataclass(frozen=True, slots=True)
class Known:
    """As much of a file that was found before as is needed to tell whether it is news."""

    id: int
    path: str
    size: int | None
    version: str
    state: str
    watch: str


@dataclass(frozen=True, slots=True)
class News:
    """What a listing has that was not known: new files, and files that wait in another version, or had vanished."""

    added: list[Entry]
    changed: list[tuple[Known, Entry]]


def news_of(entries: Sequence[Entry], known: Iterable[Known]) -> News:
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
    return News(added, changed)


def orphans_of(known: Iterable[Known], declared: Collection[str]) -> list[int]:
    """Those that are not at their end, and whose watch nobody declares any more: it is called otherwise, or is gone."""
    return [one.id for one in known if one.watch not in declared and one.state in UNFINISHED]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of the job of a file; it may be deleted."""

    exists: bool
    ingest_done: bool = False
    closed_as: str | None = None
    failure_reason: str | None = None


def settled(facts: JobFacts) -> tuple[FileState, str | None] | None:
    """Persisted when all its rows are stored, whatever becomes of them; rejected if they never will be."""
    if not facts.exists:
        return FileState.REJECTED, "its job was deleted before all its rows were stored"
    if facts.ingest_done:
        return FileState.PERSISTED, None
    if facts.closed_as is None:
        return None
    reason = facts.failure_reason or f"its job was {facts.closed_as} before all its rows were stored"
    return FileState.REJECTED, reason


def idem_key(file: WatchFile) -> str:
    """The key of its job: the same whoever submits it, and however often."""
    said = "\0".join((file.source, file.path, str(file.size), file.version, str(file.tries)))
    return f"watch {hashlib.sha256(said.encode()).hexdigest()}"
