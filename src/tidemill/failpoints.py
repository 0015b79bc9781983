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
    "claim.before": "A lane is about to claim a batch; its lease id is in the shared state.",
    "claim.leased": "The batch is leased, in the transaction of the claim.",
    "claim.after": "The lease is committed, and no item was read.",
    "flush.before": "Verdicts wait for their flush, and its transaction has not begun.",
    "flush.after_fence": "The fence has moved the counters, in the transaction of the flush.",
    "flush.after_outcomes": "The outcomes are written, in the transaction of the flush.",
    "flush.after_effects": "The hook of the kind has written its rows, in the transaction of the flush.",
    "flush.before_commit": "Everything is written, and the next statement of the flush is COMMIT.",
    "flush.after_commit": "The flush is committed, and the process has not counted it.",
}


class Action(StrEnum):
    """What a failpoint does to its process."""

    KILL = "kill"  # SIGKILL
    STOP = "stop"  # SIGSTOP; the test sends SIGCONT
    RAISE = "raise"  # an exception that no code expects
    DISCONNECT = "disconnect"  # the connections to PostgreSQL break
    LOSE_COMMIT = "lose-commit"  # PostgreSQL executes the next COMMIT of this task, and the answer is lost


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
_is_next_commit_lost: ContextVar[bool] = ContextVar("is_next_commit_lost", default=False)


def failpoint(name: str) -> None:
    """Act if the failpoint is armed; otherwise do nothing."""
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


def is_commit_lost() -> bool:
    """Return whether the answer to the COMMIT that this task has just sent is lost. A second call returns False."""
    if _armed is None or not _is_next_commit_lost.get():
        return False
    _is_next_commit_lost.set(False)
    return True


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
            _is_next_commit_lost.set(True)


def _break_connections() -> None:
    for connection, break_connection in list(_connections.items()):
        with suppress(OSError):  # the connection was closed meanwhile
            break_connection(connection)
