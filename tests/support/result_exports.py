"""Helpers for tests of result exports."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support import job_of, rows
from tidemill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.core.kinds import EXPORT_KIND
from tidemill.exports.result_export import ResultExportRequest
from tidemill.exports.use_cases import open_export_file, submit_result_export
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.blob_store import BlobWriter
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.testing import drain


async def ask(
    db: Database, mill: Mill, job_id: UUID, format_: str = "csv", owner_id: int | None = None, **options: Any
) -> tuple[UUID, bool]:
    """Submit an export of a job's results, as its owner by default."""
    job = await job_of(db, job_id)
    spec = Submission(EXPORT_KIND, owner_id=job.owner_id if owner_id is None else owner_id)
    request = ResultExportRequest.create(job.id, format_, **options)
    runtime = make_runtime(db, mill.settings, mill.registry)
    export, is_new = await submit_result_export(runtime, spec, job, request)
    return export.id, is_new


async def export(db: Database, mill: Mill, job_id: UUID, format_: str = "csv", **options: Any) -> Path:
    """Submit an export, run it, and fetch its file."""
    export_id, _ = await ask(db, mill, job_id, format_, **options)
    await drain(mill, db=db)
    return await fetch(db, mill, export_id)


async def fetch(db: Database, mill: Mill, export_id: UUID) -> Path:
    found = await open_export_file(db, open_blob_store(mill.settings.blobs), await job_of(db, export_id))
    path = mill.settings.home / found.name
    with found.file as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
    return path


def stored_files(mill: Mill) -> list[str]:
    """Return the names of all files in the blob store folder, including partial files."""
    folder = Path(mill.settings.blobs)
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


async def columns_of(db: Database, job_id: UUID) -> list[str]:
    [(found,)] = await rows(db, "SELECT result_columns FROM tidemill.job WHERE id = %s", job_id)
    return list(found)


async def big_results(db: Database, n: int, *, large: int = 0) -> UUID:
    """Create a closed job with n results of 400 bytes; the last ``large`` results have 1 MB each."""
    job_id: UUID
    [(job_id,)] = await rows(
        db,
        "INSERT INTO tidemill.job (kind, ingest_done, closed_as, closed_at, result_columns)"
        " VALUES ('elsewhere', true, 'completed', tidemill.now(), '{n,text}') RETURNING id",
    )
    await rows(db, "INSERT INTO tidemill.ingest (job_id, next_seq) VALUES (%s, %s)", job_id, n)
    await rows(db, "INSERT INTO tidemill.job_tally (job_id, done) VALUES (%s, %s)", job_id, n)
    await rows(
        db,
        "INSERT INTO tidemill.item (job_id, seq, input, at) SELECT %s, s, to_json(s), tidemill.now()"
        " FROM generate_series(0, %s::bigint - 1) s",
        job_id,
        n,
    )
    await rows(
        db,
        "INSERT INTO tidemill.outcome (job_id, seq, owner_id, status, attempts, updated_at, result)"
        " SELECT %s, s, 0, 'done', 1, tidemill.now(),"
        " jsonb_build_object('n', s, 'text', repeat('x', CASE WHEN s >= %s THEN 1000000 ELSE 400 END))"
        " FROM generate_series(0, %s::bigint - 1) s",
        job_id,
        n - large,
        n,
    )
    return job_id


def failing(monkeypatch: pytest.MonkeyPatch, verb: str, times: int) -> None:
    """Make the first ``times`` calls of a method of BlobWriter fail with ENOSPC."""
    whole: Callable[..., Any] = getattr(BlobWriter, verb)
    left = [times]

    def full(writing: BlobWriter, *args: bytes) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(writing, *args)

    monkeypatch.setattr(BlobWriter, verb, full)
