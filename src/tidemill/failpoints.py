"""Failpoints: named points in the code at which a test ends, stops or disturbs the process.

The setting TIDEMILL_FAILPOINTS arms them: ``name=action``, separated by commas. With ``name=action@3``, a process acts
at its third call or later. A failpoint acts once in all processes that share TIDEMILL_HOME: the process that acts first
creates the file ``failpoints/NAME`` there, with its process id. If a test removes the file, the failpoint acts again.
"""

import os
import signal
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

FAILPOINTS = {  # name -> where it is
    # A submission, in the process of the API or of a command
    "submit.file_staged": "The file is stored under its reserved name, and no job owns it.",
    "submit.before_transaction": "The submission is checked, and its transaction has not begun.",
    "submit.before_commit": "The job and its items are written. The transaction is not committed.",
    "submit.after_commit": "The job is committed, and the client has no answer.",
    # Ingest and downloads, in a child of a worker
    "ingest.leased": "The ingest lease is committed, and the source is not open.",
    "ingest.before_chunk": "A chunk is read, and its transaction has not begun.",
    "ingest.after_fence": "The checkpoint is moved. The transaction is not committed.",
    "ingest.after_chunk": "The chunk is committed, and the process has not counted it.",
    "ingest.finished": "The source is marked as read. The transaction is not committed.",
    "fetch.leased": "The lease of a download is committed, and the download has not begun.",
    "fetch.stored": "The download is stored, and the job does not know it.",
    # A batch, in a child of a worker
    "claim.before": "A lane is about to claim a batch; its lease id is in the shared state.",
    "claim.leased": "The batch is leased. The transaction is not committed.",
    "claim.after": "The lease is committed, and no item is read.",
    "read.items": "The items of a batch are read, and none has started.",
    "item.started": "An item is marked as running, and its handler is not called.",
    "item.finished": "The handler of an item has returned, and its verdict is not recorded.",
    "batch.handler_returned": "A batch handler has returned, and its outcomes are not decided.",
    "import.references_created": "The rows that lookups did not find are created. No row of the batch is written.",
    "import.rows_written": "The rows of a batch are in the target table. The transaction is not committed.",
    "flush.before": "Verdicts wait for their flush, and its transaction has not begun.",
    "flush.after_fence": "The fence has moved the counters. The transaction is not committed.",
    "flush.after_outcomes": "The outcomes are written. The transaction is not committed.",
    "flush.after_effects": "The hook of the kind has written its rows. The transaction is not committed.",
    "flush.before_commit": "The retry lists are written, and the flush is complete except for its COMMIT.",
    "flush.after_commit": "The flush is committed, and the process has not counted it.",
    "release.before": "A lane is about to release the items of a batch that have not run.",
    "release.released": "The items are released. The transaction is not committed.",
    # Files that handlers write, in a child of a worker
    "export.rows_written": "The rows of a table are in an unfinished file that has no expiry.",
    "export.file_finished": "The file of a table is finished and not recorded.",
    "result_export.file_finished": "The file with the results of a job is finished and not recorded.",
    "distribution.rows_written": "The rows of an input are written to an unfinished file.",
    "distribution.file_finished": "The file of an input is finished, and the item has no verdict.",
    "distribution.artifacts_recorded": "The files are recorded for reuse. The transaction is not committed.",
    # The parent process of a worker
    "heartbeat.extended": "The leases are extended. The transaction is not committed.",
    "salvage.before": "A child has died, and its parent has not recovered the batch.",
    "salvage.flushed": "The finished items of the dead child are flushed, and the others are not released.",
    "maintenance.on_duty": "This worker has the maintenance duty, and has not worked on it.",
    "sweep.reclaimed": "Expired leases are reclaimed. The transaction is not committed.",
    "fold.folded": "Counters are folded. The transaction is not committed.",
    "cleanup.files_removed": "Unneeded files are removed, and their records remain.",
    "delete.chunk_removed": "A chunk of the rows of a deleted job is removed. The transaction is not committed.",
    "relay.before_publish": "Hints are claimed, and the broker does not have them.",
    "relay.published": "The broker has the hints, and they are still in the outbox.",
    # The end of a job, in any of these processes
    "close.before_commit": "The job is closed. The transaction is not committed.",
    "close.after_commit": "The job is closed, and the process has not reported it.",
    # Requests of users, in the process of the API or of a command
    "intent.changed": "Pause, resume or cancel has changed the intent of a job. The transaction is not committed.",
    "cancel.intent_committed": "The job is being cancelled, and all its batches remain.",
    "cancel.batches_cancelled": "Ready batches are cancelled. The transaction is not committed.",
    "cancel.items_cancelled": "Selected items are cancelled. The transaction is not committed.",
    "delete.job_stopped": "The job is stopped for its deletion, and still exists.",
    "delete.job_removed": "The job is removed. The transaction is not committed.",
    "operation.added": "A bulk operation is stored. The transaction is not committed.",
    "operation.locked": "A bulk operation is locked. The transaction is not committed.",
    "operation.step_recorded": "The progress of a bulk operation is recorded. The transaction is not committed.",
    "reprocess.job_locked": "The job is locked, and no item is requeued. The transaction is not committed.",
    "reprocess.items_taken": "Items are requeued, and the job is not reopened. The transaction is not committed.",
    "redrive.job_found": "The next job with dead letters is found. The transaction is not committed.",
    "repair.rows_read": "The next failed rows are read, and none of them is fixed. The transaction is not committed.",
    "repair.rows_fixed": "Fixed rows are requeued, and the job is not reopened. The transaction is not committed.",
    "undo.rows_locked": "The rows to undo are checked and locked. The transaction is not committed.",
    "undo.rows_recorded": "The rows are recorded for a redo, and not undone. The transaction is not committed.",
    "undo.rows_reversed": "The rows are undone, and not marked as undone. The transaction is not committed.",
    # Watches, in the parent process of a worker
    "watch.leased": "The watch is leased, and its source is not listed.",
    "watch.file_claimed": "The file is claimed, and not fetched.",
    "watch.file_fetched": "The file is fetched, and has no job.",
    "watch.job_created": "The job of the file is committed, and the file does not name it.",
    "watch.path_reserved": "The path of the file in the archive is committed, and the file is not moved.",
    "watch.file_archived": "The file is moved, and its state is not stored.",
    # Administration, in the process of a command
    "purge.rows_deleted": "The jobs of a week are marked as purged. The transaction is not committed.",
    "purge.partition_detached": "A partition is detached, and not dropped.",
    "migrate.executed": "The statements of a migration are executed, and it is not recorded.",
    "migrate.recorded": "A migration is recorded, and the next one has not begun.",
    "migrate.before_commit": "All migrations are executed, and not committed.",
}


class Action(StrEnum):
    """What a failpoint does to its process."""

    KILL = "kill"  # SIGKILL
    STOP = "stop"  # SIGSTOP; the test sends SIGCONT
    RAISE = "raise"  # an exception that no code expects
    DISCONNECT = "disconnect"  # the connections to PostgreSQL break
    LOSE_COMMIT = (
        "lose-commit"  # PostgreSQL executes the next COMMIT of this task or a task that it starts; the answer is lost
    )


class FailpointError(RuntimeError):
    """The exception that the action ``raise`` raises."""


@dataclass(slots=True)
class _ArmedFailpoint:
    action: Action
    first_call: int
    calls: int = 0


_armed: dict[str, _ArmedFailpoint] | None = None
_armed_text = ""
_marker_folder = Path()
_connections: "weakref.WeakKeyDictionary[Any, Callable[[Any], None]]" = weakref.WeakKeyDictionary()
# A list, because the tasks that a task starts have copies of its context: only one of them loses a COMMIT.
_lost_commits: ContextVar[list[str]] = ContextVar("lost_commits")


def act_if_armed(name: str) -> None:
    if _armed is not None and name in _armed:
        _act_once(name, _armed[name])


def parse_failpoints(text: str) -> dict[str, tuple[Action, int]]:
    """Return the action and the first call of each failpoint of a setting; raise ValueError with the mistake."""
    return {name: (action, first_call) for name, action, first_call in _parse_entries(text)}


def arm_failpoints(text: str, home: Path) -> None:
    """Arm the failpoints of a setting, and disarm all others. The same setting again changes nothing."""
    global _armed, _armed_text, _marker_folder  # noqa: PLW0603  a failpoint that is not armed costs one global lookup
    if text == _armed_text:
        return
    _armed = {name: _ArmedFailpoint(*entry) for name, entry in parse_failpoints(text).items()} or None
    _armed_text, _marker_folder = text, home / "failpoints"
    if _armed is not None:
        _marker_folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def register_connection(connection: Any, break_connection: Callable[[Any], None]) -> None:
    """Register how the action ``disconnect`` breaks an open connection."""
    if _armed is not None:
        _connections[connection] = break_connection


def take_lost_commit() -> bool:
    """Return whether the answer to the COMMIT that this task has just sent is lost. A second call returns False."""
    if _armed is None:
        return False
    lost_commits = _lost_commits.get([])
    is_lost = bool(lost_commits)
    lost_commits.clear()
    return is_lost


# Without the variable, no failpoint of this process can be armed. A call then costs as much as a built-in function that
# does nothing: ``discard`` of an empty set, and ``bool()``, which returns False.
_CAN_BE_ARMED = any(name.upper() == "TIDEMILL_FAILPOINTS" for name in os.environ)
failpoint: Callable[[str], None] = act_if_armed if _CAN_BE_ARMED else set[str]().discard
is_commit_lost: Callable[[], bool] = take_lost_commit if _CAN_BE_ARMED else bool


def _parse_entries(text: str) -> Iterator[tuple[str, Action, int]]:
    seen: set[str] = set()
    for entry in filter(None, map(str.strip, text.split(","))):
        name, _, rest = entry.partition("=")
        action, at, call = rest.partition("@")
        if name not in FAILPOINTS:
            raise ValueError(f'has the unknown failpoint "{name}". tidemill/failpoints.py lists all names')
        if name in seen:
            raise ValueError(f'has the failpoint "{name}" twice')
        if action not in list(Action):
            raise ValueError(f'has the unknown action "{action}" in "{entry}". Use one of {", ".join(Action)}')
        if at and not (call.isascii() and call.isdecimal() and int(call)):
            raise ValueError(f'has the invalid call number "{call}" in "{entry}". Use 1 or more')
        seen.add(name)
        yield name, Action(action), int(call or 1)


def _act_once(name: str, armed: _ArmedFailpoint) -> None:
    armed.calls += 1
    if armed.calls < armed.first_call:
        return
    try:
        marker = os.open(_marker_folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:  # this process or another one has acted
        return
    with os.fdopen(marker, "wb") as file:
        file.write(b"%d\n" % os.getpid())
    match armed.action:
        case Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Action.STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        case Action.RAISE:
            raise FailpointError(f'The failpoint "{name}" raised this exception')
        case Action.DISCONNECT:
            _break_connections()
        case Action.LOSE_COMMIT:
            _lost_commits.set([name])


def _break_connections() -> None:
    for connection, break_connection in list(_connections.items()):
        with suppress(OSError):  # the connection was closed meanwhile
            break_connection(connection)
