"""Describes exceptions of handlers: formats tracebacks of limited size, without the engine's frames."""

import asyncio
import concurrent.futures
import linecache
import os
from collections.abc import Callable
from types import TracebackType

from tidemill.core.errors import escape_unprintable
from tidemill.core.outcome import HandlerException

TRACEBACK_MAX_BYTES = 8 * 1024
TRACEBACK_FRAMES_MAX = 30  # of all exceptions in a traceback together
TRACEBACK_EXCEPTIONS_MAX = 5  # chained exceptions and exceptions of groups
EXCEPTION_MESSAGE_MAX_CHARS, EXCEPTION_TYPE_MAX_CHARS, SOURCE_LINE_MAX_CHARS = 2_000, 200, 200
EXCEPTION_NOTES_MAX = 5
FILE_NAME_MAX_CHARS = 500
REDACTION_FAILED_TEXT = "Traceback removed: the redaction function failed"
TRACEBACK_FAILED_TEXT = "Traceback unavailable: the exception could not be formatted"
_ENGINE_FOLDERS = tuple(
    os.path.dirname(file) + os.sep  # noqa: PTH120  compared with the file names of code objects, which are text
    for file in (__file__, asyncio.__file__, concurrent.futures.__file__)
)


class TracebackCapture:
    """Describes exceptions of handlers as the settings and the mill require."""

    def __init__(self, *, is_enabled: bool, redact: Callable[[str], str] | None = None) -> None:
        """``redact`` gets each traceback before it is stored or logged, and returns the text to keep."""
        self._is_enabled = is_enabled
        self._redact = redact

    def capture(self, error: BaseException) -> HandlerException | None:
        """Return what to store about an exception, or None if tracebacks are off. Never raises."""
        if not self._is_enabled:
            return None
        try:
            text, type_ = format_traceback(error), _get_exception_type_name(error)
            location = _get_location_of_last_frame(error)
        except BaseException:  # noqa: BLE001  a user's exception class may raise anything
            text, type_, location = TRACEBACK_FAILED_TEXT, "Exception", ""
        return HandlerException(type_, _cut_middle_of_traceback(self._redact_text(text)), location)

    def _redact_text(self, text: str) -> str:
        if self._redact is None:
            return text
        try:
            redacted = self._redact(text)
            return escape_unprintable(redacted) if type(redacted) is str else REDACTION_FAILED_TEXT
        except BaseException:  # noqa: BLE001  the user's function may raise anything; the traceback must not leak
            return REDACTION_FAILED_TEXT


def format_traceback(error: BaseException) -> str:
    """Return the traceback of an exception as Python prints it, without local variables and the engine's frames.

    It has a limited number of exceptions and frames, and each message a limited length.
    """
    chain, has_earlier = _list_exception_chain(error)
    members = _list_group_members(error, TRACEBACK_EXCEPTIONS_MAX - len(chain))
    frames_max = TRACEBACK_FRAMES_MAX // (len(chain) + len(members))
    parts = ["Earlier exceptions are left out.\n\n"] if has_earlier else []
    for one, link in chain:
        parts += [_format_exception(one, frames_max), link]
    total = len(error.exceptions) if isinstance(error, BaseExceptionGroup) else 0
    for number, one in enumerate(members, 1):
        parts += [f"\nException {number} of {total:,} in the group:\n\n", _format_exception(one, frames_max)]
    if total > len(members):
        parts.append(f"\n{total - len(members):,} more exceptions in the group are left out.\n")
    return "".join(parts).rstrip("\n")


def _list_exception_chain(error: BaseException) -> tuple[list[tuple[BaseException, str]], bool]:
    """Return the exception after its causes, each with the text that follows it, and whether earlier ones exist."""
    chain = [(error, "")]
    seen = {id(error)}
    while True:
        newer = chain[-1][0]
        cause = newer.__cause__
        link = "\nThe above exception was the direct cause of the following exception:\n\n"
        if cause is None and not newer.__suppress_context__:
            cause = newer.__context__
            link = "\nDuring handling of the above exception, another exception occurred:\n\n"
        if cause is None or id(cause) in seen:
            return chain[::-1], False
        if len(chain) == TRACEBACK_EXCEPTIONS_MAX:
            return chain[::-1], True
        seen.add(id(cause))
        chain.append((cause, link))


def _list_group_members(error: BaseException, limit: int) -> list[BaseException]:
    return list(error.exceptions[: max(limit, 1)]) if isinstance(error, BaseExceptionGroup) else []


def _format_exception(error: BaseException, frames_max: int) -> str:
    frames = _list_handler_frames(error.__traceback__)
    lines = ["Traceback (most recent call last):"] if frames else []
    first = len(frames) if len(frames) <= frames_max else frames_max // 3
    left_out = max(len(frames) - frames_max, 0)
    lines += [_format_frame(tb) for tb in frames[:first]]
    if left_out:
        lines.append(f"  [{left_out:,} frames left out]")
        lines += [_format_frame(tb) for tb in frames[first + left_out :]]
    lines.append(_describe_type_and_message(error))
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        lines += [_truncate_and_escape_message(note) for note in notes[:EXCEPTION_NOTES_MAX] if isinstance(note, str)]
    return "\n".join(lines) + "\n"


def _list_handler_frames(tb: TracebackType | None) -> list[TracebackType]:
    """Return the frames from the handler's first frame on. If all frames are of the engine, return the last one."""
    frames = []
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    for at, one in enumerate(frames):
        if not one.tb_frame.f_code.co_filename.startswith(_ENGINE_FOLDERS):
            return frames[at:]
    return frames[-1:]


def _format_frame(tb: TracebackType) -> str:
    code = tb.tb_frame.f_code
    # Not the traceback module, which checks the time of each file again for every exception.
    source = linecache.getline(code.co_filename, tb.tb_lineno or 0, tb.tb_frame.f_globals).strip()
    where = escape_unprintable(f'  File "{code.co_filename}", line {tb.tb_lineno}, in {code.co_name}')
    return f"{where}\n    {escape_unprintable(source[:SOURCE_LINE_MAX_CHARS])}" if source else where


def _get_location_of_last_frame(error: BaseException) -> str:
    frames = _list_handler_frames(error.__traceback__)
    if not frames:
        return ""
    file = frames[-1].tb_frame.f_code.co_filename[-FILE_NAME_MAX_CHARS:]
    return escape_unprintable(f"{file}:{frames[-1].tb_lineno}")


def _get_exception_type_name(error: BaseException) -> str:
    module, name = type(error).__module__, type(error).__qualname__
    return escape_unprintable((name if module == "builtins" else f"{module}.{name}")[:EXCEPTION_TYPE_MAX_CHARS])


def _describe_type_and_message(error: BaseException) -> str:
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001  a user's __str__ may raise anything
        message = "[the message is unavailable: __str__ failed]"
    return (
        f"{_get_exception_type_name(error)}: {_truncate_and_escape_message(message)}"
        if message
        else _get_exception_type_name(error)
    )


def _truncate_and_escape_message(message: str) -> str:
    """Cut a long message between two words, so that a secret is not cut into parts that a redaction cannot find."""
    if len(message) > EXCEPTION_MESSAGE_MAX_CHARS:
        left_out = len(message) - EXCEPTION_MESSAGE_MAX_CHARS
        message = message[:EXCEPTION_MESSAGE_MAX_CHARS]
        message = f"{message.rpartition(' ')[0] or message} [about {left_out:,} characters left out]"
    return escape_unprintable(message)


def _cut_middle_of_traceback(text: str) -> str:
    """Cut a text in the middle to TRACEBACK_MAX_BYTES: its end has the exception, its start the handler."""
    data = text.encode(errors="replace")
    if len(data) <= TRACEBACK_MAX_BYTES:
        return text
    mark = f"\n[{len(data) - TRACEBACK_MAX_BYTES:,} or more bytes left out]\n"
    room = TRACEBACK_MAX_BYTES - len(mark) - 8
    head, tail = data[: room // 4], data[-(room - room // 4) :]
    return head.decode(errors="ignore") + mark + tail.decode(errors="ignore")
