"""Thousands of rows against a real service that throttles all requests for a while."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enrichment.scenes import Scene
from enrichment.throttling_proxy import Gate
from limits.model import most_above
from support import Workers, assert_sound, closed
from support.reconciliation_services import CsvReconcile, scripted
from tidemill.core.status import JobStatus

FIRST = ("Ada", "Alan", "Grace", "Edsger", "Barbara", "Donald", "Tony", "John", "Frances", "Niklaus")
LAST = ("Lovelace", "Turing", "Hopper", "Dijkstra", "Liskov", "Knuth", "Hoare", "Backus", "Allen", "Wirth")
RATE, BURST, AT_ONCE = 10, 2, 2
NAMES = [f"{first} {last}" for first in FIRST for last in LAST]


@pytest.fixture
def many_names(tmp_path: Path) -> Iterator[CsvReconcile]:
    with CsvReconcile(tmp_path, NAMES) as service:
        yield service


@pytest.mark.parametrize(("rows", "seconds"), [(200, 1.5), pytest.param(5_000, 8.0, marks=pytest.mark.full)])
async def test_throttling_storm_loses_no_row_and_keeps_rate_limit(
    scene: Scene, workers: Workers, many_names: CsvReconcile, rows: int, seconds: float
) -> None:
    gate = Gate(many_names.url, rows * 2 // 5, seconds)
    async with scripted(gate.answer) as service:
        scene.limiters = f'[limiters.names]\nrate = "{RATE}/s"\nburst = {BURST}'
        scene.declare("names", service.url, concurrency=AT_ONCE, limit="names")
        names = [NAMES[number % len(NAMES)] for number in range(rows)]
        job_id = await scene.submit([{"name": name} for name in names], threshold=90)
        workers.start("tidemill.app.mill:builtin_mill", config=scene.settings.config)
        job = await closed(scene.db, job_id, within=300)
        await gate.close()
    assert (job.status, job.counts.done) == (JobStatus.COMPLETED, rows)
    await assert_sound(scene.db, job_id)
    outcomes = await scene.rows(job_id)
    assert [row.result["id"] for row in outcomes] == [many_names.ids[name] for name in names]
    assert {row.attempts for row in outcomes} == {1}, "throttled calls do not count as attempts"
    assert gate.refused
    # With one process, at most its open requests started before a window and arrive in it.
    arrivals = sorted(gate.passed + gate.refused)
    assert most_above(arrivals, RATE, BURST) <= AT_ONCE, "the rate limit holds in every window"
    assert len(gate.refused) < len(gate.passed) / 2 + 20, "throttled workers send few requests"
