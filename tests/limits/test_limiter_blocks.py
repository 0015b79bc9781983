"""Tests of blocks: a throttled call of one process blocks all, and waiting workers stop immediately."""

from pathlib import Path

from support import Workers, add_job, assert_sound, eventually, rows
from tidemill.store.database import Database

BLOCK_S, HEARD_S = 3.0, 1.5  # the lookahead and the validity of permits, and a slow machine

APP = """
    mill.limiter("shop", "40/s", burst=10)
    book = open(f"starts.{os.getpid()}", "a", buffering=1)

    @mill.handler("call", limit="shop", concurrency=20, max_attempts=1)
    async def call(item):
        refused = item.input["n"] == 60 and item.throttles == 0
        book.write(f"{time.monotonic()} {int(refused)} {os.getpid()}\\n")
        if refused:
            raise Retry("429", after=3.0, throttled=True)
        if item.input["n"] == 150:
            raise Retry("429", after=3600, throttled=True)
"""


def said(folder: Path) -> list[tuple[float, bool, str]]:
    lines = [line.split() for path in folder.glob("starts.*") for line in path.read_text().splitlines()]
    return sorted((float(moment), refused == "1", pid) for moment, refused, pid in lines)


async def test_limiter_block_applies_to_all_processes_and_does_not_delay_stop(
    db: Database, workers: Workers, tmp_path: Path
) -> None:
    workers.app(APP)
    job_id = await add_job(db, 400, "call")
    worker = workers.start(processes=3, claim_max=10)

    async def blocked_for_long() -> bool:
        query = "SELECT 1 FROM tidemill.limiter WHERE blocked_until > tidemill.now() + interval '1 minute'"
        return bool(await rows(db, query))

    await eventually(blocked_for_long)
    starts = said(tmp_path)
    [refused] = [moment for moment, was_refused, _ in starts if was_refused]
    assert not [moment for moment, _, _ in starts if refused + HEARD_S < moment < refused + BLOCK_S]
    assert len({pid for _, _, pid in starts}) > 1

    async def nothing_in_hand() -> bool:
        return await rows(db, "SELECT count(*) FROM tidemill.batch WHERE state = 'leased'") == [(0,)]

    await eventually(nothing_in_hand)
    begun = len(said(tmp_path))
    worker.terminate()
    assert worker.wait(20) == 0
    assert begun == len(said(tmp_path)) < 400
    await assert_sound(db, job_id)
    assert await rows(db, "SELECT count(*) FROM tidemill.limiter_hold") == [(0,)]
