"""Converts results and exceptions of handlers to outcomes, and outcomes to verdicts that can be written."""

import asyncio
import concurrent.futures
import linecache
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tidemill.core.batch import Lease
from tidemill.core.decide import (
    Verdict,
    build_failure_error,
    decide_from_outcome,
    describe_exception,
    list_codes_of_further_errors,
    outcome_from_exception,
    outcome_from_unparsable_record,
)
from tidemill.core.errors import escape_unprintable
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import BatchExceptions, Done, ErrorDetails, Fail, HandlerException, Outcome, Retry, Wait
from tidemill.core.status import ItemStatus
from tidemill.core.throttling import is_throttling_error
from tidemill.engine.learned_columns import LearnedColumns
from tidemill.limits.limiter_permit import ThrottleReports
from tidemill.store.jsonb import decode_json, encode_json, encode_json_values

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


# A verdict must fit into a verdict area of the shared memory.
MAX_RESULT_BYTES, MAX_ERROR_BYTES = 1024 * 1024, 256 * 1024
_DONE = Done()
_jitter = random.Random().random  # noqa: S311  spreads retries, guards no secret


def decide(
    item: Item,
    outcome: Outcome,
    handler: Handler,
    duration_ms: int,
    columns: LearnedColumns | None = None,
    backoff_factor: float = 1.0,
) -> Verdict:
    """Return the encoded verdict on one attempt. A result that cannot be encoded or stored fails the item."""
    if type(outcome) is Fail:
        return _build_failure_verdict(item, outcome, duration_ms)
    try:
        decision = decide_from_outcome(item, outcome, handler.retry, _jitter(), backoff_factor)
        result = None if decision.result is None else encode_json(decision.result)
        normalized = None if decision.normalized is None else encode_json(decision.normalized)
        size = len(result or b"") + len(normalized or b"")
        if size > MAX_RESULT_BYTES:
            raise ValueError(f"the result has {size} bytes, the maximum is {MAX_RESULT_BYTES}")  # noqa: TRY301
        if result is not None and columns is not None:
            columns.learn_from_result(decision.result, result)
    except Exception as problem:  # noqa: BLE001  encoding a user's object may raise anything
        return _build_failure_verdict(item, _make_invalid_result_failure(problem), duration_ms)
    error = code = None
    if decision.error is not None:
        details = _add_exception_type(decision.error, outcome.exception)
        error, code = encode_json(details), str(details["code"])
    attempts = item.attempt if decision.charged else item.attempt - 1
    return Verdict(
        item.seq,
        decision.status,
        attempts,
        duration_ms,
        result,
        normalized,
        error,
        code,
        decision.delay,
        decision.charged,
        outcome.exception,
    )


def _build_failure_verdict(item: Item, outcome: Fail, duration_ms: int) -> Verdict:
    """Return the verdict on a failure. This is a fast path: for a file of invalid rows it is most of the work."""
    try:
        details = _add_exception_type(build_failure_error(outcome), outcome.exception)
        error = encode_json(details)
        if len(error) > MAX_ERROR_BYTES:
            note = f"The details of the error had {len(error):,} bytes. The maximum is {MAX_ERROR_BYTES:,}."
            short = Fail(outcome.reason, code=outcome.code, retryable=outcome.retryable, details={"removed": note})
            details = _add_exception_type(build_failure_error(short), outcome.exception)
            error = encode_json(details)
    except Exception as problem:  # noqa: BLE001  encoding a user's object may raise anything
        details = build_failure_error(_make_invalid_result_failure(problem))
        error = encode_json(details)
    return Verdict(
        item.seq,
        ItemStatus.FAILED,
        item.attempt,
        duration_ms,
        error=error,
        code=details["code"],
        exception=outcome.exception,
        further_codes=list_codes_of_further_errors(decode_json(error)) if "errors" in details else (),
    )


def _add_exception_type(error: dict[str, Any], exception: HandlerException | None) -> dict[str, Any]:
    return error if exception is None else error | {"type": exception.type}


def _make_invalid_result_failure(problem: Exception) -> Fail:
    reason = f"The result of the handler cannot be stored: {describe_exception(problem)}"
    return Fail(reason, code="invalid_result")


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """The verdicts on a whole batch.

    A further ``sparse_done`` items are done without an outcome row. ``batch_outcome`` is what the batch reports to the
    concurrency controller: a throttled retry if there was one.
    """

    verdicts: Sequence[Verdict] = ()
    sparse_done: int = 0
    batch_outcome: Outcome = _DONE


def decide_batch(
    items: Sequence[Item],
    outcomes: BatchExceptions,
    lease: Lease,
    handler: Handler,
    seconds: float,
    columns: LearnedColumns,
    backoff_factor: float,
) -> BatchDecision:
    """Return the verdicts on the items of a batch; the keys of ``outcomes`` count only items without a defect."""
    good = [item for item in items if item.defect is None]
    item_ms = round(seconds * 1000 / max(len(items), 1))
    leaves_no_row = lease.sparse and lease.seqs is None
    failed = _build_failure_verdicts(
        [good[index] for index in outcomes.failed], list(outcomes.failed.values()), item_ms
    )
    others = [
        decide(item, outcome, handler, item_ms, columns, backoff_factor)
        for item, outcome in _iter_items_with_outcomes(items, good, outcomes, with_done=not leaves_no_row)
    ]
    sparse_done = len(good) - len(outcomes) - len(outcomes.failed) if leaves_no_row else 0
    retries = [one for one in outcomes.values() if isinstance(one, Retry) and not isinstance(one, Wait)]
    batch_outcome = max(retries, key=lambda retry: bool(retry.throttled), default=_DONE)
    return BatchDecision(failed + others, sparse_done, batch_outcome)


def _build_failure_verdicts(items: Sequence[Item], errors: Sequence[ErrorDetails], duration_ms: int) -> list[Verdict]:
    """Return the verdicts on many failures, encoded together; an error has a code, a reason and details."""
    try:
        encoded = encode_json_values(errors)
    except Exception:  # noqa: BLE001  one of them cannot be encoded; encode each separately
        return [
            _build_failure_verdict(item, _make_fail_from_error_details(error), duration_ms)
            for item, error in zip(items, errors, strict=True)
        ]
    return [
        Verdict(
            item.seq,
            ItemStatus.FAILED,
            item.attempt,
            duration_ms,
            error=data,
            code=error["code"],
            further_codes=list_codes_of_further_errors(decode_json(data)) if "errors" in error else (),
        )
        for item, error, data in zip(items, errors, encoded, strict=True)
    ]


def _make_fail_from_error_details(error: ErrorDetails) -> Fail:
    details = {name: value for name, value in error.items() if name not in ("code", "reason")}
    return Fail(error["reason"], code=error["code"], details=details)


def _iter_items_with_outcomes(
    items: Sequence[Item], good: list[Item], outcomes: BatchExceptions, *, with_done: bool
) -> Iterator[tuple[Item, Outcome]]:
    for index, outcome in outcomes.items():
        yield good[index], outcome
    if with_done:
        for index, item in enumerate(good):
            if index not in outcomes and index not in outcomes.failed:
                yield item, _DONE
    if len(good) < len(items):
        for item in items:
            if item.defect is not None:
                yield item, outcome_from_unparsable_record(item.defect)


def outcome_from_error(
    error: BaseException, handler: Handler, reports: ThrottleReports, tracebacks: "TracebackCapture"
) -> Outcome:
    """Return the outcome of a call that raised. It counts as reported if a permit reported the exception."""
    # A throttled response is never permanent, even if the class of the exception is declared as permanent.
    if handler.permanent and isinstance(error, handler.permanent) and not is_throttling_error(error):
        outcome: Outcome = Fail(describe_exception(error))
        outcome.exception = tracebacks.capture(error)
        return outcome
    outcome = outcome_from_exception(error)
    if outcome is error:
        add_exception_of_cause(outcome, tracebacks)
        return outcome
    if reports.has_reported(error):
        reports.append(outcome)
    if isinstance(outcome, Retry) and not outcome.throttled:  # a throttled call is expected
        outcome.exception = tracebacks.capture(error)
    return outcome


def add_exception_of_cause(outcome: Outcome, tracebacks: "TracebackCapture") -> None:
    """Add the exception in ``raise Fail(…) from error`` or ``raise Retry(…) from error`` to the outcome."""
    is_failure = isinstance(outcome, Fail) or (
        isinstance(outcome, Retry) and not isinstance(outcome, Wait) and not outcome.throttled
    )
    if is_failure and outcome.__cause__ is not None:
        outcome.exception = tracebacks.capture(outcome.__cause__)


def parse_batch_result(result: Any, count: int) -> BatchExceptions:
    """Return the outcomes of a batch handler's return value for ``count`` items.

    Raises:
        Outcome: The handler returned one outcome for the whole batch, other than Done.
    """
    if result is None:
        return BatchExceptions()
    if isinstance(result, BatchExceptions):
        return result
    if isinstance(result, Done):
        return repeat_outcome_for_items(result, count)
    if isinstance(result, Outcome):
        raise result
    if isinstance(result, list | tuple) and len(result) == count:
        return BatchExceptions({i: v if isinstance(v, Outcome) else Done(v) for i, v in enumerate(result)})
    got = f"{len(result)} outcomes" if isinstance(result, list | tuple) else f"a {type(result).__name__}"
    reason = f"The batch handler returned {got} for {count} items. It must return None or one outcome per item."
    return repeat_outcome_for_items(Fail(reason, code="invalid_result"), count)


def repeat_outcome_for_items(outcome: Outcome, count: int) -> BatchExceptions:
    return BatchExceptions(dict.fromkeys(range(count), outcome))
