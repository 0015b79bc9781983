"""Tests that a batch handler isolates the failing item of a retry list and settles the others."""

from collections.abc import Sequence

from support import assert_sound, job_of
from tidemill import Item, Mill, Retry
from tidemill.config import Settings
from tidemill.core.outcome import Outcome
from tidemill.store.database import Database
from tidemill.testing import drain

ROWS = 40
BAD = 17
MOST = 200  # calls; halving 40 items takes six, and a few more if halves are merged with other lists


async def test_split_retry_list_halves_are_not_merged_again(db: Database, settings: Settings) -> None:
    mill, calls = Mill(settings), 0

    @mill.batch_handler("brittle", max_attempts=3)
    async def brittle(items: Sequence[Item]) -> list[Outcome | str]:
        nonlocal calls
        calls += 1
        if calls > MOST:  # an endless loop: stop it, so that the test fails instead of hanging
            return ["ok" for _ in items]
        if items[0].attempt == 1:
            return [Retry("not yet") for _ in items]
        if any(item.input == BAD for item in items):
            raise ValueError("there is one among them that cannot be taken")
        return ["ok" for _ in items]

    job_id = await mill.submit_async("brittle", range(ROWS))
    await drain(mill, db=db)
    await assert_sound(db, job_id)
    assert calls < MOST
    counts = (await job_of(db, job_id)).counts
    assert (counts.done, counts.failed) == (ROWS - 1, 1)
