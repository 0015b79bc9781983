"""Tracebacks of handlers' exceptions: what they contain, their limits, and which outcomes have none."""

import asyncio
import re
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from support import rows
from tidemill import Done, Fail, Item, Mill, NotFound, Retry, Skip
from tidemill.config import Settings
from tidemill.core.decide import Verdict
from tidemill.core.outcome import HandlerException
from tidemill.core.status import ItemStatus
from tidemill.engine.flusher import LOGGED_EXCEPTION_INTERVAL_S, LOGGED_EXCEPTIONS_MAX, ExceptionLog
from tidemill.engine.verdicts import (
    REDACTION_FAILED_TEXT,
    TRACEBACK_FRAMES_MAX,
    TRACEBACK_MAX_BYTES,
    TracebackCapture,
    format_traceback,
)
from tidemill.jobs import queries
from tidemill.store.database import Database
from tidemill.testing import drain

FRAME = re.compile(r'^  File "', re.MULTILINE)


def raised(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:  # noqa: BLE001  hostile exceptions are of any class
        return error
    raise AssertionError("the function must raise")


def captured(error: BaseException, redact: Callable[[str], str] | None = None) -> HandlerException:
    found = TracebackCapture(is_enabled=True, redact=redact).capture(error)
    assert found is not None
    data = found.traceback.encode()  # raises if it has half of a surrogate pair
    assert len(data) <= TRACEBACK_MAX_BYTES
    assert b"\0" not in data
    assert len(FRAME.findall(found.traceback)) <= TRACEBACK_FRAMES_MAX
    return found


def divide() -> float:
    secret_local = "hunter2"
    return len(secret_local) / 0


def test_traceback_has_frames_and_message_but_no_local_variables() -> None:
    found = captured(raised(divide))
    assert found.type == "ZeroDivisionError"
    assert found.traceback.startswith("Traceback (most recent call last):\n  File ")
    assert "in divide\n    return len(secret_local) / 0\n" in found.traceback
    assert found.traceback.endswith("\nZeroDivisionError: division by zero")
    assert "hunter2" not in found.traceback
    assert re.search(r"test_tracebacks\.py:\d+$", found.location)


def test_traceback_of_deep_recursion_keeps_first_and_last_frames() -> None:
    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        raise ValueError("at the bottom")

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        found = captured(raised(lambda: descend(10_000)))
    finally:
        sys.setrecursionlimit(limit)
    assert len(FRAME.findall(found.traceback)) == TRACEBACK_FRAMES_MAX
    assert "\n  [9,973 frames left out]\n" in found.traceback
    assert "in raised" in found.traceback
    assert found.traceback.endswith('raise ValueError("at the bottom")\nValueError: at the bottom')


def test_traceback_of_endless_recursion_is_captured() -> None:
    def endless() -> None:
        endless()

    assert captured(raised(endless)).type == "RecursionError"


def test_traceback_survives_exception_whose_message_cannot_be_made() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    def fail() -> None:
        raise Mute

    found = captured(raised(fail))
    assert found.type.endswith("Mute")
    assert "[the message is unavailable: __str__ failed]" in found.traceback


def test_traceback_survives_class_without_a_name() -> None:
    class Nameless(type):
        def __getattribute__(cls, name: str) -> Any:
            raise KeyError(name)

    class Hidden(Exception, metaclass=Nameless):
        pass

    def fail() -> None:
        raise Hidden

    assert captured(raised(fail)).traceback == "Traceback unavailable: the exception could not be formatted"


def test_traceback_escapes_characters_that_cannot_be_stored_or_printed() -> None:
    def fail() -> None:
        raise ValueError("a\0b\ud800c\x1b[31m")

    assert captured(raised(fail)).traceback.endswith(r"ValueError: a\x00b\ud800c\x1b[31m")


def test_traceback_and_location_escape_file_name_that_is_not_text() -> None:
    scope: dict[str, Any] = {}
    exec(compile("def fail(): raise ValueError", "/odd\udcff.py", "exec"), scope)
    found = captured(raised(scope["fail"]))
    assert found.location == r"/odd\udcff.py:1"
    assert r'File "/odd\udcff.py", line 1, in fail' in found.traceback


def test_traceback_with_huge_message_is_cut() -> None:
    def fail() -> None:
        raise ValueError("word " * 1_000_000)

    text = captured(raised(fail)).traceback
    assert len(text) < 4_000
    assert text.endswith("word [about 4,998,000 characters left out]")


def test_traceback_above_size_limit_is_cut_in_the_middle() -> None:
    source = "def f0(): raise ValueError('end')\n" + "".join(f"def f{n}(): f{n - 1}()\n" for n in range(1, 28))
    name = "long" * 60
    scope: dict[str, Any] = {}
    exec(compile(source, f"/{name}/{name}.py", "exec"), scope)
    text = captured(raised(scope["f27"])).traceback
    assert "bytes left out]\n" in text
    assert text.startswith("Traceback")
    assert text.endswith("ValueError: end")


def test_traceback_includes_cause_and_context_and_ends_cycles() -> None:
    def fail() -> None:
        try:
            try:
                dict[str, int]()["first"]
            except KeyError:
                raise TypeError("second")  # noqa: B904  the implicit context is under test
        except TypeError as error:
            raise ValueError("third") from error

    error = raised(fail)
    text = captured(error).traceback
    places = [text.index(one) for one in ("KeyError", "During handling", "TypeError: ", "direct cause", "ValueError: ")]
    assert places == sorted(places)
    cause = error.__cause__
    assert cause is not None
    assert cause.__context__ is not None
    cause.__context__.__cause__ = error
    assert captured(error).traceback == text


def test_traceback_of_long_chain_says_that_exceptions_are_left_out() -> None:
    error = ValueError("0")
    for n in range(1, 2_000):
        newer = ValueError(str(n))
        newer.__cause__ = error
        error = newer
    text = captured(error).traceback
    assert text.startswith("Earlier exceptions are left out.\n\nValueError: 1995\n")
    assert text.endswith("ValueError: 1999")


def test_traceback_of_exception_group_lists_its_members() -> None:
    def fail() -> None:
        raise BaseExceptionGroup("many", [raised(divide), *(ValueError(n) for n in range(9))])

    text = captured(raised(fail)).traceback
    assert "ExceptionGroup: many (10 sub-exceptions)\n" in text
    assert "Exception 1 of 10 in the group:" in text
    assert "in divide" in text
    assert text.endswith("6 more exceptions in the group are left out.")


def test_traceback_includes_notes() -> None:
    error = raised(divide)
    error.add_note("while reading row 3")
    assert format_traceback(error).endswith("division by zero\nwhile reading row 3")


def test_redaction_changes_stored_traceback() -> None:
    def fail() -> None:
        raise ValueError("token=abc123")

    found = captured(raised(fail), lambda text: re.sub(r"token=\w+", "token=[redacted]", text))
    assert "abc123" not in found.traceback.splitlines()[-1]
    assert found.traceback.endswith("token=[redacted]")


def _raise(_: str) -> str:
    raise SystemExit


@pytest.mark.parametrize("redact", [_raise, lambda _: None, lambda _: b"bytes", lambda text: text / 2])
def test_failed_redaction_removes_traceback(redact: Callable[[str], Any]) -> None:
    assert captured(raised(divide), redact).traceback == REDACTION_FAILED_TEXT


def test_result_of_redaction_is_bounded_and_storable() -> None:
    assert captured(raised(divide), lambda _: "\0" + "x" * 1_000_000).traceback.startswith(r"\x00xxx")


async def details_of(db: Database, job_id: UUID) -> list[Any]:
    return [
        one for (one,) in await rows(db, "SELECT details FROM tidemill.outcome WHERE job_id = %s ORDER BY 1", job_id)
    ]


async def test_exceptions_of_async_sync_and_batch_handlers_have_traceback_from_handler_on(
    mill: Mill, db: Database
) -> None:
    @mill.handler("async", max_attempts=1)
    async def in_loop(item: Item) -> None:
        await asyncio.sleep(0)
        raise LookupError(item.input)

    @mill.handler("sync", max_attempts=1, permanent=(LookupError,))
    def in_thread(item: Item) -> None:
        raise LookupError(item.input)

    @mill.batch_handler("batch", max_attempts=1)
    def whole_batch(items: list[Item]) -> None:
        raise LookupError(items[0].input)

    @mill.batch_handler("writer", max_attempts=1)
    async def in_transaction(items: list[Item], conn: Any) -> None:
        raise LookupError(items[0].input)

    for kind, name in (
        ("async", "in_loop"),
        ("sync", "in_thread"),
        ("batch", "whole_batch"),
        ("writer", "in_transaction"),
    ):
        job_id = await mill.submit_async(kind, ["gone"])
        await drain(mill)
        error = (await queries.get_item(db, job_id, 0))["error"]
        assert error["type"] == "LookupError", kind
        assert error["traceback"].splitlines()[0] == "Traceback (most recent call last):"
        assert error["traceback"].splitlines()[1].endswith(f"in {name}"), kind
        assert error["traceback"].endswith("LookupError: gone")


async def test_expected_outcomes_have_no_traceback(mill: Mill, db: Database) -> None:
    class Throttled(Exception):
        status_code = 429

    answers: list[Exception] = [
        Skip("no"), NotFound("no"), Fail("no"), Retry("no"), Retry("no", throttled=True), Throttled()
    ]  # fmt: skip

    @mill.handler("planned", max_attempts=1, max_attempts_not_found=1)
    async def planned(item: Item) -> None:
        raise answers[item.input]

    job_id = await mill.submit_async("planned", list(range(len(answers))))
    await drain(mill, retries=False)
    items = [await queries.get_item(db, job_id, seq) for seq in range(len(answers))]
    assert [item["error"]["code"] for item in items] == [
        "skipped", "not_found", "permanent", "exhausted", "throttled", "throttled"
    ]  # fmt: skip
    assert {(item["error"]["type"], item["error"]["traceback"]) for item in items} == {(None, None)}
    assert [len(item["attempt_history"]) for item in items] == [1, 1, 1, 1, 0, 0], "throttled attempts do not count"


async def test_failure_raised_from_an_exception_has_the_traceback_of_its_cause(mill: Mill, db: Database) -> None:
    @mill.handler("wrapped")
    async def wrapped(item: Item) -> None:
        try:
            divide()
        except ZeroDivisionError as error:
            raise Fail("cannot divide", code="math", details={"type": 5}) from error

    job_id = await mill.submit_async("wrapped", [1])
    await drain(mill)
    error = (await queries.get_item(db, job_id, 0))["error"]
    assert (error["code"], error["reason"], error["type"]) == ("math", "cannot divide", "ZeroDivisionError")
    assert error["traceback"].endswith("ZeroDivisionError: division by zero")


async def test_timeout_has_no_traceback(mill: Mill, db: Database) -> None:
    @mill.handler("slow", timeout=0.05, max_attempts=1)
    async def slow(item: Item) -> None:
        await asyncio.Event().wait()

    job_id = await mill.submit_async("slow", [1])
    await drain(mill)
    error = (await queries.get_item(db, job_id, 0))["error"]
    assert (error["code"], error["traceback"]) == ("timeout", None)


async def test_tracebacks_are_neither_stored_nor_logged_when_setting_is_off(settings: Settings, db: Database) -> None:
    mill = Mill(settings.model_copy(update={"tracebacks": False}))

    @mill.handler("fails", max_attempts=1)
    async def fails(item: Item) -> None:
        divide()

    job_id = await mill.submit_async("fails", [1])
    await drain(mill, db=db)
    item = await queries.get_item(db, job_id, 0)
    assert item["error"]["reason"] == "ZeroDivisionError: division by zero"
    assert (item["error"]["type"], item["error"]["traceback"]) == (None, None)
    assert [set(one) for one in await details_of(db, job_id)] == [{"attempts"}]
    await mill.close_async()


async def test_redaction_of_mill_applies_to_stored_traceback(settings: Settings, db: Database) -> None:
    mill = Mill(settings, redact_traceback=lambda text: text.replace("hunter3", "***"))

    @mill.handler("fails", max_attempts=1)
    async def fails(item: Item) -> None:
        raise ValueError(item.input)

    job_id = await mill.submit_async("fails", ["hunter3"])
    await drain(mill, db=db)
    assert (await queries.get_item(db, job_id, 0))["error"]["traceback"].endswith("ValueError: ***")
    await mill.close_async()


async def test_item_done_after_a_failure_keeps_history_but_no_traceback(mill: Mill, db: Database) -> None:
    @mill.handler("flaky")
    async def flaky(item: Item) -> Done:
        if item.attempt == 1:
            divide()
        return Done("fine")

    job_id = await mill.submit_async("flaky", [1])
    await drain(mill, retries=False)
    assert (await queries.get_item(db, job_id, 0))["error"]["type"] == "ZeroDivisionError"
    await drain(mill)
    item = await queries.get_item(db, job_id, 0)
    assert item["error"] is None
    assert [(one["attempt"], one["status"], one["code"], one["worker"]) for one in item["attempt_history"]] == [
        (1, "retry_wait", "error", "drain"),
        (2, "done", None, "drain"),
    ]
    assert [set(one) for one in await details_of(db, job_id)] == [{"attempts"}]


def failure(type_: str, location: str = "a.py:1") -> Verdict:
    return Verdict(0, ItemStatus.FAILED, 1, 1, exception=HandlerException(type_, "Traceback", location))


def test_log_has_one_traceback_per_type_and_location_each_minute() -> None:
    now = 0.0
    log = ExceptionLog(lambda: now)
    assert [n for _, n in log.select_verdicts_to_log([failure("A")] * 1_000 + [failure("A", "b.py:2")])] == [0, 0]
    assert log.select_verdicts_to_log([failure("A"), Verdict(1, ItemStatus.DONE, 1, 1)]) == []
    now = LOGGED_EXCEPTION_INTERVAL_S
    assert [n for _, n in log.select_verdicts_to_log([failure("A")] * 2)] == [1_000]


def test_log_bounds_number_of_different_tracebacks() -> None:
    now = 0.0
    log = ExceptionLog(lambda: now)
    assert len(log.select_verdicts_to_log([failure(str(n)) for n in range(10_000)])) == LOGGED_EXCEPTIONS_MAX
    now = LOGGED_EXCEPTION_INTERVAL_S
    assert len(log.select_verdicts_to_log([failure("new")])) == 1
