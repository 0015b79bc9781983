"""Scenarios of features: imports, downloads, exports, distributions, watches and brokers."""

import hashlib
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from distributions.scenes import FIELDS, QUERY, TABLE, given
from distributions.scenes import Scene as DistributionScene
from engine.kill_matrix.job_scenarios import GOOD, outcomes
from engine.kill_matrix.stage import Stage
from exports.scenes import Scene as ExportScene
from exports.scenes import with_people
from imports.scenes import Scene as ImportScene
from support import add_job, eventually, job_of, rows
from support.brokers import folder_for, make_broker, need
from support.loopback_server import Server, ranged
from tidemill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.core.file_format import FileFormat
from tidemill.core.input_source import SourceReference
from tidemill.core.status import JobStatus
from tidemill.exports.result_export import ResultExportRequest
from tidemill.exports.use_cases import submit_result_export
from tidemill.failpoints import Action
from tidemill.files.blobs import open_blob_store
from tidemill.imports.import_records import count_created_references
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async

DATASET = f"""
mill.dataset("prices", query={QUERY!r}, fields={FIELDS!r}, date_field="effective_date", read=["user"])
"""
REPAIRS_MAX = 3
WATCH = """
[watches.nightly]
source = "inbox"
stable_for = "0s"
every = "1s"
job = { kind = "test" }
"""


async def import_(stage: Stage) -> None:
    scene = ImportScene(stage.db, stage.settings, Mill(stage.settings))
    await scene.table("CREATE TABLE t (id int, n int CHECK (n > 0))")
    lines = ["id,n", *(f"{n},{0 if n % 50 == 7 else 1}" for n in range(300))]
    job_id = await scene.submit("\n".join(lines) + "\n", "t")
    stage.app()
    stage.work(ingest_min_rows=50, ingest_max_rows=50, import_batch_rows=100)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED_WITH_ERRORS
    good = [(n,) for n in range(300) if n % 50 != 7]
    assert await rows(stage.db, "SELECT id FROM t ORDER BY id") == good
    assert await scene.effects(job_id) == (len(good), 0, 0)
    assert [row - 1 for row, _ in await scene.errors(job_id)] == [n for n in range(300) if n % 50 == 7]


async def import_with_lookup(stage: Stage) -> None:
    """Rows name teams that do not exist. Each team is created once, and counted once."""
    scene = ImportScene(stage.db, stage.settings, Mill(stage.settings))
    await scene.table("CREATE TABLE teams (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE)")
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, team_id int NOT NULL REFERENCES teams)")
    lines = ["id,team", *(f"{n},Team {n * 7 % 40}" for n in range(300))]
    options: dict[str, Any] = {"lookups": {"team_id": ["name"]}, "create_missing": ["team_id"]}
    job_id = await scene.submit("\n".join(lines) + "\n", "t", **options)
    stage.app()
    stage.work(ingest_min_rows=50, ingest_max_rows=50, import_batch_rows=50)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    found = await rows(stage.db, "SELECT t.id, name FROM t JOIN teams ON teams.id = team_id ORDER BY t.id")
    assert found == [(n, f"Team {n * 7 % 40}") for n in range(300)]
    assert await rows(stage.db, "SELECT count(*) FROM teams") == [(40,)]
    assert await stage.db.read(count_created_references, job_id) == {"public.teams": 40}


async def repair(stage: Stage) -> None:
    """A client repairs the failed rows. If the failpoint ended a repair with an error, it sends the request again."""
    scene = ImportScene(stage.db, stage.settings, Mill(stage.settings))
    await scene.table("CREATE TABLE t (id int, n int)")
    job_id = await scene.submit("id,n\n" + "".join(f"{n},{'7 kg' if n % 3 else 8}\n" for n in range(60)), "t")
    stage.app()
    stage.work(import_batch_rows=20)
    assert (await stage.closed(job_id)).counts.failed == 40
    body = {"cause": "n.type", "rule": {"type": "replace", "find": " kg"}}

    async def is_over() -> bool:
        return not await rows(stage.db, "SELECT 1 FROM tidemill.operation WHERE state = 'running'")

    for _ in range(REPAIRS_MAX):
        answer = await stage.request("POST", f"/v1/imports/{job_id}/repairs", json=body)
        assert answer.status_code in (200, 202, 409), answer.text
        await eventually(is_over)
        if (await job_of(stage.db, job_id)).counts.failed == 0:
            break
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    assert await rows(stage.db, "SELECT id, n FROM t ORDER BY id") == [(n, 7 if n % 3 else 8) for n in range(60)]
    assert await rows(stage.db, "SELECT count(*), count(DISTINCT seq) FROM tidemill.item_fix") == [(40, 40)]


async def undo(stage: Stage) -> None:
    """A client undoes an upsert. If the failpoint ended the undo with an error, it sends the request again."""
    scene = ImportScene(stage.db, stage.settings, Mill(stage.settings))
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT n, 0 FROM generate_series(0, 29) n"
    )
    job_id = await scene.submit("id,n\n" + "".join(f"{n},1\n" for n in range(60)), "t", mode="upsert", undo=True)
    stage.app()
    stage.work(import_batch_rows=20)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    await rows(stage.db, "UPDATE t SET n = 2 WHERE id IN (5, 55)")

    async def is_over() -> bool:
        return not await rows(stage.db, "SELECT 1 FROM tidemill.operation WHERE state = 'running'")

    for _ in range(REPAIRS_MAX):
        answer = await stage.request("POST", f"/v1/imports/{job_id}/undo", json={})
        assert answer.status_code in (200, 202, 409), answer.text
        await eventually(is_over)
        if await rows(stage.db, "SELECT 1 FROM tidemill.operation WHERE state = 'done'"):
            break
    expected = [*((n, 2 if n == 5 else 0) for n in range(30)), (55, 2)]
    assert await rows(stage.db, "SELECT id, n FROM t ORDER BY id") == expected
    log = "SELECT is_undo, sum(live_count)::int FROM tidemill.undo_log GROUP BY 1 ORDER BY 1"
    assert await rows(stage.db, log) == [(False, 2), (True, 58)]
    assert await rows(stage.db, "SELECT sum(items)::int FROM tidemill.operation") == [(58,)]


async def fetch(stage: Stage) -> None:
    body = b"".join(b'{"n": %d}\n' % n for n in range(200))
    stage.app(GOOD)
    with Server(ranged(body, 'ETag: "v1"')) as server:
        source = SourceReference(url=server.url("/rows.ndjson"), blob=uuid4().hex, format="ndjson")
        async with stage.db.transaction() as conn:
            steps = build_submission_steps(Submission("test", source=source), ())
            job_id, _ = await run_steps_async(conn, steps)
        stage.work(remote_allow=f"127.0.0.1:{server.port}")
        assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    assert await outcomes(stage, job_id) == {("done", None): 200}


async def relay(stage: Stage) -> None:
    need("redis")
    folder = folder_for("redis", stage.folder)
    stage.stack.callback(shutil.rmtree, folder, ignore_errors=True)
    broker = stage.stack.enter_context(make_broker("redis", folder))
    stage.app(GOOD)
    stage.work(broker=broker.url)

    async def is_registered() -> bool:
        return bool(await rows(stage.db, "SELECT 1 FROM tidemill.worker WHERE info ? 'broker'"))

    await eventually(is_registered)
    job_id = await add_job(stage.db, 20)
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED

    async def is_outbox_empty() -> bool:
        return not await rows(
            stage.db, "SELECT 1 FROM tidemill.outbox WHERE job_id = %s AND claimed_until IS NULL", job_id
        )

    await eventually(is_outbox_empty)


async def _check_file(stage: Stage, job_id: UUID, line_count: int) -> None:
    """Assert that an export has one complete file, and that no other stored file lacks a record that removes it."""
    [(result,)] = await rows(stage.db, "SELECT result FROM tidemill.outcome WHERE job_id = %s", job_id)
    with open_blob_store(stage.settings.blobs).open(result["file_id"]) as file:
        data = file.read()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (result["size"], result["sha256"])
    assert len(data.splitlines()) == line_count
    expiring = {name for (name,) in await rows(stage.db, "SELECT file_id FROM tidemill.unneeded_file")}
    assert set(open_blob_store(stage.settings.blobs).list_names()) <= expiring


async def export(stage: Stage) -> None:
    scene = await with_people(ExportScene(stage.db, stage.settings, Mill(stage.settings)))
    job_id = await scene.submit("people")
    stage.app()
    stage.work()
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    await _check_file(stage, job_id, 1_001)


async def result_export(stage: Stage) -> None:
    stage.app(GOOD)
    stage.work()
    exported = await add_job(stage.db, 30)
    await stage.closed(exported)
    runtime, job = make_runtime(stage.db, stage.settings), await job_of(stage.db, exported)
    request = ResultExportRequest(exported, FileFormat.CSV)
    job_id = (await submit_result_export(runtime, Submission(""), job, request))[0].id
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    await _check_file(stage, job_id, 31)


async def distribution(stage: Stage) -> None:
    await rows(stage.db, TABLE)
    scene = DistributionScene(stage.db, stage.settings)
    inputs = [given("ABC"), given("DEF"), given("abc")]
    job_id = await scene.submit(*inputs)
    stage.app(DATASET)
    stage.work()
    assert (await stage.closed(job_id)).status is JobStatus.COMPLETED
    await scene.assert_whole()
    assert len(await scene.artifacts()) == 3
    progress = await scene.files(job_id)
    assert (progress.generated, progress.reused) == (3, 0)
    # A process that is killed leaves unfinished files, which maintenance removes after an hour.
    assert stage.action in (Action.KILL, Action.STOP) or scene.leftovers() == []


def _put_files(inbox: Path) -> None:
    inbox.mkdir()
    for number in range(2):
        (inbox / f"{number}.csv").write_text("n\n1\n2\n")


def _list_files(inbox: Path) -> list[str]:
    return [path.relative_to(inbox).as_posix() for path in inbox.rglob("*.csv")]


async def watch(stage: Stage) -> None:
    inbox = stage.folder / "inbox"
    _put_files(inbox)
    (stage.folder / "watches.toml").write_text(WATCH)
    stage.app(GOOD)
    stage.work(config=stage.folder / "watches.toml", sources={"inbox": str(inbox)})

    async def is_archived() -> bool:
        states = await rows(stage.db, "SELECT state FROM tidemill.watch_file")
        return states == [("processed",)] * 2

    await eventually(is_archived)
    assert sorted(_list_files(inbox)) == ["processed/0.csv", "processed/1.csv"]
    jobs = await rows(stage.db, "SELECT id FROM tidemill.job WHERE kind = 'test'")
    assert len(jobs) == 2, "each file has one job"
    for (job_id,) in jobs:
        await stage.closed(job_id)
        assert await outcomes(stage, job_id) == {("done", None): 2}
