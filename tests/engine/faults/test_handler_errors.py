"""Tests of handlers that raise or return invalid values: only their item fails, with a clear error."""

import asyncio
import textwrap
from typing import Any
from uuid import UUID

import pytest

from support import Workers, add_job, add_rows, assert_sound, closed, eventually, fates, rows
from tidemill.store.database import Database

WITHIN = 60.0
ENDED = {("done", None, 1): 19}
HEAD = """
import msgspec, sys
from tidemill.core.outcome import Outcome

class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no words")

async def run_async(item):
    if item.input["n"] == 7:
        return bad[item.input["bad"]]()
    await asyncio.sleep(0.01)

def run_sync(item):
    if item.input["n"] == 7:
        return bad[item.input["bad"]]()
    time.sleep(0.01)

for how, call in (("async", run_async), ("sync", run_sync)):
    mill.handler(how, max_attempts=1, timeout=5, concurrency=10)(call)
bad = {}
"""
RAISED = {
    "error": ("raise ValueError('bad luck')", "ValueError: bad luck"),
    "nul": ("raise ValueError('nul \\x00 in it')", "nul"),
    "surrogate": ("raise ValueError('half a pair \\ud800')", "half a pair"),
    "wordless": ("raise Silent", "Silent"),
    "stop": ("raise StopIteration", "StopIteration"),
    "group": ("raise ExceptionGroup('many', [ValueError('one')])", "many"),
    "cancelled": ("raise asyncio.CancelledError", "Cancel"),
    "exit": ("sys.exit('bye')", "bye"),
}
RETURNED = {
    "an_object": "return object()",
    "surrogate": "return '\\ud800'",
    "nan": "return {'x': float('nan')}",
    "nul": "return 'a\\x00b'",
    "nul_key": "return {'k\\x00': 1}",
    "five_mb": "return 'x' * 5_000_000",
    "normalized": "return Done(normalized='x' * 5_000_000)",
    "raw": "return msgspec.Raw(b'not json')",
    "raw_surrogate": "return msgspec.Raw(b'\"\\\\ud800\"')",
    "outcome": "return Outcome()",
}
MADE_OF_RUBBISH = {
    "number": "raise Fail(404)",
    "nothing": "raise Fail(None)",
    "surrogate": "raise Fail('half a pair \\ud800')",
    "code_surrogate": "raise Fail('gone', code='half \\ud800')",
    "code_nul": "raise Fail('gone', code='nul \\x00')",
    "after_text": "raise Retry('later', after='soon')",
    "after_nan": "raise Retry('later', after=float('nan'))",
    "after_inf": "raise Retry('later', after=float('inf'))",
}


def app(bodies: dict[str, str]) -> str:
    """Two kinds, `async` and `sync`, whose item 7 does what its input names."""
    functions = [f"def {name}():\n    {body}\nbad[{name!r}] = {name}\n" for name, body in bodies.items()]
    return textwrap.dedent(HEAD) + "\n".join(functions)


async def run_each(workers: Workers, db: Database, kind: str, bodies: dict[str, str]) -> dict[str, UUID]:
    """Submit a job of twenty items for each; every item must settle."""
    workers.app(app(bodies))
    workers.start(max_concurrent_jobs=100)
    jobs = {
        name: await add_rows(db, (b'{"n": %d, "bad": "%s"}' % (n, name.encode()) for n in range(20)), kind)
        for name in bodies
    }
    waits = [closed(db, job_id, WITHIN) for job_id in jobs.values()]
    ended = dict(zip(jobs, await asyncio.gather(*waits, return_exceptions=True), strict=True))
    assert [name for name, job in ended.items() if isinstance(job, BaseException)] == [], "some items did not settle"
    await assert_sound(db)
    return jobs


async def errors(db: Database, jobs: dict[str, UUID]) -> dict[str, dict[str, Any]]:
    query = "SELECT error FROM tidemill.outcome WHERE job_id = %s AND seq = 7"
    return {name: dict((await rows(db, query, job_id))[0][0]) for name, job_id in jobs.items()}


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_handler_exception_is_recorded_as_item_error(kind: str, workers: Workers, db: Database) -> None:
    jobs = await run_each(workers, db, kind, {name: body for name, (body, _) in RAISED.items()})
    ended = {name: await fates(db, job_id) for name, job_id in jobs.items()}
    assert ended == {name: ENDED | {("failed", "exhausted", 1): 1} for name in RAISED}
    told = {name: error["reason"] for name, error in (await errors(db, jobs)).items()}
    assert {name for name, (_, words) in RAISED.items() if words not in told[name]} == set()


async def test_handler_unstorable_result_fails_only_its_item(workers: Workers, db: Database) -> None:
    jobs = await run_each(workers, db, "async", RETURNED)
    ended = {name: await fates(db, job_id) for name, job_id in jobs.items()}
    assert ended == {name: ENDED | {("failed", "invalid_result", 1): 1} for name in RETURNED}
    assert not any("retryable" in error for error in (await errors(db, jobs)).values())


async def test_handler_outcome_with_invalid_arguments_fails_its_item(workers: Workers, db: Database) -> None:
    jobs = await run_each(workers, db, "async", MADE_OF_RUBBISH)
    for name, job_id in jobs.items():
        ended = await fates(db, job_id)
        assert ended.pop(("done", None, 1)) == 19, name
        assert [(status, attempts) for status, _, attempts in ended] == [("failed", 1)], name


async def test_unstorable_result_is_salvaged_as_failure_after_child_crash(workers: Workers, db: Database) -> None:
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
    process = workers.start(flush_interval_ms=60_000)
    job_id = await add_job(db, 50)

    async def a_child_lives() -> list[int]:
        return workers.children(process)

    await closed(db, job_id, WITHIN)
    expected = {("done", None, 1): 48, ("failed", "invalid_result", 1): 1, ("failed", "poison", 0): 1}
    assert await fates(db, job_id) == expected
    assert await eventually(a_child_lives)
    await assert_sound(db)


async def test_failure_with_huge_details_keeps_code_and_reason_without_details(workers: Workers, db: Database) -> None:
    workers.app("""
        from tidemill import Fail

        @mill.handler("test", max_attempts=1)
        async def run(item):
            if item.input["n"] == 3:
                errors = [{"code": "k" * 100 + str(n)} for n in range(13_000)]
                raise Fail("too many", code="many", details={"errors": errors})
            if item.input["n"] == 4:
                raise Fail("too long", code="long", details={"text": "x" * 3_000_000})
    """)
    workers.start()
    job_id = await add_job(db, 10)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 8, ("failed", "many", 1): 1, ("failed", "long", 1): 1}
    stored = await rows(db, "SELECT error FROM tidemill.outcome WHERE status = 'failed' ORDER BY seq")
    assert [error["reason"] for (error,) in stored] == ["too many", "too long"]
    assert all("The maximum is 262,144." in error["removed"] for (error,) in stored)
    await assert_sound(db)
