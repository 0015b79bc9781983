"""Use cases of watches: list watches and their files, and scan watches."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import Busy, Conflict, UnknownEntity
from tidemill.core.json_input import JsonObject
from tidemill.core.list_pages import Page
from tidemill.core.principal import Principal
from tidemill.runtime import Runtime
from tidemill.watches import watch_records
from tidemill.watches.file_state import FileState, WatchFile
from tidemill.watches.scanner import load_watches, make_watch_scanner
from tidemill.watches.watch import Watch

SCAN_REQUEST_TIMEOUT_S = 20.0  # the next scan continues with the remaining files


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """A watch, and the stored state of its scans and files."""

    watch: Watch
    state: Mapping[str, Any]  # empty if no worker has registered the watch yet

    def to_json(self) -> JsonObject:
        return {
            "name": self.watch.name,
            "source": str(self.watch.source),
            "task": self.watch.task.describe(),
            "every_s": self.watch.every,
            "scanned_at": self.state.get("scanned_at"),
            "problem": self.state.get("problem"),
            "files": self.state.get("counts") or {},
        }


@dataclass(frozen=True, slots=True)
class ScanSummary:
    """The result of one scan. ``files`` are the files that it changed or that still wait."""

    name: str
    found: int = 0
    submitted: int = 0
    problem: str | None = None
    files: Sequence[WatchFile] = ()


def list_visible_watches(runtime: Runtime, user: Principal | None) -> list[Watch]:
    """Return the watches of a user. Administrators and the local caller (None) see all watches."""
    watches = runtime.get(load_watches).values()
    if user is None or user.is_admin:
        return list(watches)
    return [watch for watch in watches if watch.owner in (user.name, str(user.user_id))]


def get_visible_watch(runtime: Runtime, user: Principal | None, name: str) -> Watch:
    """Return a watch by name. Raise UnknownEntity if it does not exist or belongs to another user."""
    for watch in list_visible_watches(runtime, user):
        if watch.name == name:
            return watch
    raise UnknownEntity(f'Unknown watch "{name}"')


async def list_watch_statuses(runtime: Runtime, user: Principal | None) -> list[WatchStatus]:
    watches = list_visible_watches(runtime, user)
    states = await runtime.db.read(watch_records.read_watch_states, [watch.name for watch in watches])
    return [WatchStatus(watch, states.get(watch.name, {})) for watch in watches]


async def list_watch_files(
    runtime: Runtime, user: Principal, name: str, *, state: FileState | None, limit: int, after: object
) -> Page[dict[str, Any]]:
    """Return a page of a watch's files, most recently changed first."""
    watch = get_visible_watch(runtime, user, name)
    return await runtime.db.read(watch_records.list_watch_files, watch.name, state=state, limit=limit, after=after)


async def scan_watches(runtime: Runtime, user: Principal, name: str | None, *, retry_failed: bool) -> list[ScanSummary]:
    """Scan one watch, or all watches of the user, within ``SCAN_REQUEST_TIMEOUT_S``."""
    watches = list_visible_watches(runtime, user) if name is None else [get_visible_watch(runtime, user, name)]
    deadline = time.monotonic() + SCAN_REQUEST_TIMEOUT_S
    return [await _scan_watch(runtime, watch, deadline, retry_failed=retry_failed) for watch in watches]


ACCEPTED_MESSAGE = "A user accepted the changed columns. The next scan submits the file"
REJECTED_MESSAGE = "A user rejected the changed columns"


async def decide_held_file(
    runtime: Runtime,
    user: Principal | None,
    name: str,
    *,
    accept: bool,
    file_id: int | None = None,
    path: str | None = None,
) -> WatchFile:
    """Accept a held file, which the next scan submits, or reject it.

    Raises:
        UnknownEntity: The watch does not exist or belongs to another user.
        Conflict: The file is not held, or a newer version of it waits.
    """
    watch = get_visible_watch(runtime, user, name)
    file = await runtime.db.run(
        watch_records.decide_held_file,
        watch.name,
        file_id=file_id,
        path=path,
        accepted=accept,
        note=ACCEPTED_MESSAGE if accept else REJECTED_MESSAGE,
    )
    if file is None:
        shown = f'"{path}"' if file_id is None else str(file_id)
        raise Conflict(f'File {shown} of watch "{name}" is not held, or a newer version of it waits')
    return file


async def _scan_watch(runtime: Runtime, watch: Watch, deadline: float, *, retry_failed: bool) -> ScanSummary:
    scanner = runtime.get(make_watch_scanner)
    try:
        report = await scanner.scan_watch(
            watch.name, retry_failed=retry_failed, should_continue=lambda: time.monotonic() < deadline
        )
    except Busy as error:
        return ScanSummary(watch.name, problem=str(error))
    result = report.result
    return ScanSummary(watch.name, result.found, result.submitted, report.problem, report.files)
