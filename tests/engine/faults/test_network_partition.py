"""Tests of a host that is cut off for twice the lease: nothing is lost, its late results are rejected."""

import pytest

from engine.faults.test_stale_worker import stale
from support import Workers, add_job, assert_sound, closed, eventually, rows
from support.networks import Host, database_over_tcp, hosts
from tidemill.core.status import JobStatus
from tidemill.store.database import Database

LEASE_S = 2
APP = """
    @mill.handler("test", concurrency=10)
    async def run(item):
        open("in-hand-" + os.environ["HOST"], "w").close()
        await asyncio.sleep(0.3)
        while "LONELY" in os.environ and not os.path.exists("restored"):  # so that its results are late
            await asyncio.sleep(0.05)
        return os.environ["HOST"]
"""


@pytest.mark.parametrize(
    ("processes", "items"), [((2, 2, 2), 1_500), pytest.param((7, 7, 6), 20_000, marks=pytest.mark.full)]
)
async def test_network_partition_loses_no_items_and_late_flushes_are_stale(
    workers: Workers, db: Database, monkeypatch: pytest.MonkeyPatch, processes: tuple[int, ...], items: int
) -> None:
    workers.app(APP)
    job_id = await add_job(db, items, batch_size=50)
    with hosts(3) as (lonely, *others):
        places = [lonely, *others]
        async with database_over_tcp(db.url, places) as urls:
            started = []
            for host, url, n in zip(places, urls, processes, strict=True):
                monkeypatch.setenv("HOST", host.name)
                with monkeypatch.context() as its:
                    if host is lonely:
                        its.setenv("LONELY", "yes")
                    started.append(workers.start(processes=n, inside=host.inside, database_url=url, claim_max=50))
            await _have_items(workers, places)
            lonely.cut()
            await _is_silent(db, started[0].pid)
            lonely.mend()
            (workers._folder / "restored").touch()
            done = await closed(db, job_id)
            assert (done.status, done.counts.done) == (JobStatus.COMPLETED, items)

            async def refused() -> bool:
                return await stale(db, started[0].pid) > 0

            await eventually(refused)
            workers.end()
    assert await rows(db, "SELECT count(*), count(DISTINCT seq) FROM tidemill.outcome") == [(items, items)]
    await assert_sound(db, job_id)


async def _have_items(workers: Workers, places: list[Host]) -> None:
    async def seen() -> bool:
        return all((workers._folder / f"in-hand-{host.name}").exists() for host in places)

    await eventually(seen)


async def _is_silent(db: Database, pid: int) -> None:
    """Wait for twice the lease on the database's clock; by then other workers have its batches."""
    look = "SELECT 1 FROM tidemill.worker WHERE pid = %s AND seen_at < tidemill.now() - %s * interval '2 s'"

    async def silent() -> bool:
        # The worker may hold the maintenance duty, which would only expire after ten seconds.
        await rows(db, "UPDATE tidemill.duty SET until = '-infinity' WHERE worker LIKE %s", f"%-{pid}-%")
        return bool(await rows(db, look, pid, LEASE_S))

    await eventually(silent)
