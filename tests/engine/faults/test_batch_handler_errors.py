"""Tests of set-based handlers that raise, hang or return invalid values."""

import pytest

from support import Workers, add_job, assert_sound, closed, fates
from tidemill.store.database import Database

WITHIN = 60.0


@pytest.mark.parametrize("returned", ["[None]", "'text'", "{}", "[1] * (len(items) + 1)"])
async def test_batch_handler_returning_wrong_shape_fails_all_items(
    returned: str, workers: Workers, db: Database
) -> None:
    workers.app(f"""
        @mill.batch_handler("test", max_attempts=1)
        async def run(items):
            return {returned}
    """)
    workers.start(claim_max=50)
    job_id = await add_job(db, 100)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("failed", "invalid_result", 1): 100}
    await assert_sound(db)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("raise ValueError('half \\ud800')", "exhausted"),
        ("raise asyncio.CancelledError", "exhausted"),
        ("sys.exit(2)", "exhausted"),
        ("await asyncio.sleep(60)", "timeout"),
        ("time.sleep(60)", "timeout"),
    ],
    ids=["surrogate", "cancelled", "exit", "sleeps", "blocks"],
)
async def test_batch_handler_failure_is_narrowed_down_to_one_item(
    body: str, code: str, workers: Workers, db: Database
) -> None:
    workers.app(f"""
        import sys

        @mill.batch_handler("test", max_attempts=1, timeout=0.3)
        async def run(items):
            if any(item.input["n"] == 7 for item in items):
                {body}
    """)
    workers.start(claim_max=16)
    job_id = await add_job(db, 64)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 63, ("failed", code, 1): 1}
    await assert_sound(db)


async def test_batch_handler_unstorable_result_fails_only_its_item(workers: Workers, db: Database) -> None:
    workers.app("""
        import msgspec
        bad = {3: object(), 4: "a\\x00", 5: msgspec.Raw(b"not json"), 6: "x" * 5_000_000}

        @mill.batch_handler("test", max_attempts=1)
        def run(items):
            return [bad.get(item.input["n"]) for item in items]
    """)
    workers.start(claim_max=50)
    job_id = await add_job(db, 100)
    await closed(db, job_id, WITHIN)
    assert await fates(db, job_id) == {("done", None, 1): 96, ("failed", "invalid_result", 1): 4}
    await assert_sound(db)
