"""What becomes of a file by what became of its job."""

import hashlib
from dataclasses import dataclass

from tidemill.domain.watching.file import FileState, WatchFile


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
