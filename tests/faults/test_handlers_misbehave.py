"""Handlers that raise, hang or return rubbish: a clear error for their item, and nothing for its neighbours."""

from typing import Any
from uuid import UUID

import pytest

from support import Workers, add_job, assert_sound, closed, eventually, fates, rows
from tidemill.store.database import Database

WITHIN = 30.0
ONE_DONE = {("done", None, 1): 99}


def bad_at_seven(body: str, declare: str = "async def run(item)", **options: object) -> str:
    """An app whose handler does this for item 7, and takes a moment for every other."""
    given = "".join(f", {name}={value!r}" for name, value in ({"max_attempts": 1} | options).items())
    pause = "await asyncio.sleep(0.01)" if declare.startswith("async") else "time.sleep(0.01)"
    return f"""
        import ctypes, msgspec
        from tidemill.domain.outcome import Outcome

        class Silent(Exception):
            def __str__(self):
                raise RuntimeError("no words")

        async def hurt():
            raise ValueError("inside")

        @mill.handler("test"{given})
        {declare}:
            if item.input["n"] == 7:
                {body}
            {pause}
    """


async def error_of_seven(db: Database, job_id: UUID, code: str) -> dict[str, Any]:
    """Item 7 failed with this code after one attempt, its 99 neighbours are done after one."""
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == ONE_DONE | {("failed", code, 1): 1}
    await assert_sound(db)
    found = await rows(db, "SELECT error FROM tidemill.outcome WHERE job_id = %s AND seq = 7", job_id)
    return dict(found[0][0])


@pytest.mark.parametrize("declare", ["async def run(item)", "def run(item)"])
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ValueError('bad luck')", "ValueError: bad luck"),
        ("raise ValueError('nul \\x00 in it')", "nul"),
        ("raise ValueError('half a pair \\ud800')", "half a pair"),
        ("raise Silent", "Silent"),
        ("raise StopIteration", "StopIteration"),
        ("raise ExceptionGroup('many', [ValueError('one')])", "many"),
        ("raise asyncio.CancelledError", "Cancel"),
    ],
    ids=["error", "nul", "surrogate", "no-words", "stop-iteration", "group", "cancelled"],
)
async def test_whatever_a_handler_raises_is_told(
    declare: str, body: str, told: str, workers: Workers, db: Database
) -> None:
    workers.app(bad_at_seven(body, declare, timeout=10))
    workers.start()
    error = await error_of_seven(db, await add_job(db, 100), "exhausted")
    assert told in error["reason"]
    assert error["row"] == 8


@pytest.mark.parametrize(
    "body",
    [
        "return object()",
        "return '\\ud800'",
        "return 'a\\x00b'",
        "return {'k\\x00': 1}",
        "return 'x' * 5_000_000",
        "return Done(normalized='x' * 5_000_000)",
        "return msgspec.Raw(b'not json')",
        "return msgspec.Raw(b'\"\\\\ud800\"')",
        "return Outcome()",
    ],
    ids=["object", "surrogate", "nul", "nul-key", "5mb", "5mb-normalized", "raw", "raw-surrogate", "bare-outcome"],
)
async def test_a_result_that_cannot_be_stored_fails_its_item_only(body: str, workers: Workers, db: Database) -> None:
    workers.app(bad_at_seven(body))
    workers.start()
    error = await error_of_seven(db, await add_job(db, 100), "invalid_result")
    assert error["retryable"] is False


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("raise Fail(404)", "permanent"),
        ("raise Fail('gone', code='half \\ud800')", "permanent"),
        ("raise Fail('gone', code='nul \\x00')", "permanent"),
        ("raise Fail(None)", "permanent"),
    ],
    ids=["number", "surrogate", "nul", "none"],
)
async def test_an_outcome_made_of_rubbish_still_settles_its_item(
    body: str, code: str, workers: Workers, db: Database
) -> None:
    workers.app(bad_at_seven(body))
    workers.start()
    job_id = await add_job(db, 100)
    await closed(db, job_id, WITHIN)
    ended = await rows(db, "SELECT status, attempts, count(*) FROM tidemill.outcome GROUP BY 1, 2 ORDER BY 1")
    assert ended == [("done", 1, 99), ("failed", 1, 1)]
    await assert_sound(db)


@pytest.mark.parametrize("after", ["'soon'", "float('nan')", "float('inf')", "1e30", "-5"])
async def test_a_retry_after_no_sensible_time_is_still_tried_again(after: str, workers: Workers, db: Database) -> None:
    workers.app(bad_at_seven(f"raise Retry('later', after={after})", max_attempts=2, backoff=0.01, backoff_cap=0.1))
    workers.start()
    job_id = await add_job(db, 100)

    async def settled_or_waiting() -> bool:
        return sum((await fates(db, job_id)).values()) == 100

    await eventually(settled_or_waiting, WITHIN)
    assert (await fates(db, job_id))[("done", None, 1)] == 99
    await assert_sound(db)


async def test_not_a_number_becomes_null(workers: Workers, db: Database) -> None:
    workers.app(bad_at_seven("return {'x': float('nan')}"))
    workers.start()
    job_id = await add_job(db, 100)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 100}
    assert await rows(db, "SELECT result FROM tidemill.outcome WHERE seq = 7") == [({"x": None},)]
    await assert_sound(db)


async def test_rubbish_that_is_not_flushed_yet_survives_the_death_of_its_process(
    workers: Workers, db: Database
) -> None:
    workers.app("""
        import msgspec

        @mill.handler("test", max_attempts=1)
        async def run(item):
            if item.input["n"] == 7:
                return msgspec.Raw(b'"\\\\ud800"')
            if item.input["n"] == 8:
                await asyncio.sleep(0.1)
                os.abort()
    """)
    workers.start(flush_interval_ms=60_000)
    job_id = await add_job(db, 50)
    await closed(db, job_id, WITHIN)
    expected = {("done", None, 1): 48, ("failed", "invalid_result", 1): 1, ("failed", "poison", 0): 1}
    assert await fates(db, job_id) == expected
    await assert_sound(db)
