"""Helpers of the distribution tests."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from support import assert_sound, job_of, rows
from tidemill import Mill
from tidemill.app.mill_declarations import DatasetOptions
from tidemill.app.runtime_factory import make_runtime
from tidemill.config import Settings
from tidemill.core.job import Job
from tidemill.core.principal import Role
from tidemill.distributions import artifact_records
from tidemill.distributions.artifact_records import DistributionProgress
from tidemill.distributions.dataset import Dataset
from tidemill.distributions.use_cases import (
    DistributionSpec,
    list_distribution_inputs,
    load_datasets,
    make_distribution_use_cases,
)
from tidemill.files.blobs import open_blob_store
from tidemill.runtime import Runtime
from tidemill.store.database import Database
from tidemill.testing import drain

TABLE = """
CREATE TABLE public.prices (index_key text, effective_date integer, asofindicator text, member text, price numeric);
CREATE INDEX ON public.prices (index_key, effective_date);
INSERT INTO public.prices SELECT k, 20240202, 'CLS', 'member ' || n, n * 1.5
FROM (VALUES ('ABC'), ('DEF'), ('abc')) AS t(k), generate_series(1, 3) AS n;
"""
FIELDS = {"index_key": "text", "effective_date": "yyyymmdd", "asofindicator": "text"}
QUERY = """
SELECT member, price FROM public.prices WHERE index_key = %(index_key)s AND effective_date = %(effective_date)s
AND asofindicator = %(asofindicator)s ORDER BY member
"""
PRICES: DatasetOptions = {"query": QUERY, "fields": FIELDS, "date_field": "effective_date", "read": ["user"]}
ABC = b"member,price\nmember 1,1.5\nmember 2,3.0\nmember 3,4.5\n"


def given(key: str = "ABC", day: Any = 20240202, kind: str = "CLS") -> dict[str, Any]:
    return {"index_key": key, "effective_date": day, "asofindicator": kind}


@dataclass
class Scene:
    """A database, a blob store, datasets, and distributions of them."""

    db: Database
    settings: Settings
    mill: Mill = field(init=False)

    def __post_init__(self) -> None:
        self.mill = Mill(self.settings)
        self.mill.dataset("prices", **PRICES)

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        return load_datasets(self.runtime)

    @property
    def runtime(self) -> Runtime:
        return make_runtime(self.db, self.settings, self.mill.registry)

    async def submit(self, *inputs: Any, dataset: str = "prices", policy: Any = None, **wanted: Any) -> UUID:
        """Submit a distribution without running it."""
        return await self.submit_these(inputs or [given()], dataset, policy, **wanted)

    async def submit_these(
        self, inputs: Sequence[Any], dataset: str = "prices", policy: Any = None, **wanted: Any
    ) -> UUID:
        spec = DistributionSpec(dataset, inputs, policy=policy or {}, **wanted)
        return (await make_distribution_use_cases(self.runtime).submit(self.db, spec, Role.USER))[0]

    async def run(self, *inputs: Any, **wanted: Any) -> list[dict[str, Any]]:
        """Submit a distribution, run it, and return its inputs with their files or errors."""
        return await self.finish(await self.submit(*inputs, **wanted))

    async def finish(self, job_id: UUID) -> list[dict[str, Any]]:
        await drain(self.mill, db=self.db)
        await assert_sound(self.db, job_id)
        return await self.content(job_id)

    async def content(self, job_id: UUID) -> list[dict[str, Any]]:
        page = await list_distribution_inputs(self.db, job_id, limit=1000)
        return [{**entry} for entry in page.items]

    async def job(self, job_id: UUID) -> Job:
        return await job_of(self.db, job_id)

    async def job_count(self) -> int:
        return int((await rows(self.db, "SELECT count(*) FROM tidemill.job"))[0][0])

    async def files(self, job_id: UUID) -> DistributionProgress:
        return (await self.db.read(artifact_records.read_distribution_progress_by_job, [job_id])).get(
            job_id, DistributionProgress()
        )

    async def artifacts(self) -> list[tuple[Any, ...]]:
        return await rows(self.db, "SELECT dataset, path, sha256, size FROM tidemill.artifact ORDER BY path")

    def name(self, path: str) -> str:
        return path.removeprefix(open_blob_store(self.settings.blobs).url("x")[:-1])

    def read(self, path: str) -> bytes:
        with open_blob_store(self.settings.blobs).open(self.name(path)) as file:
            return file.read()

    def remove(self, path: str) -> None:
        open_blob_store(self.settings.blobs).remove(self.name(path))

    def stored(self) -> list[str]:
        return sorted(open_blob_store(self.settings.blobs).list_names())

    def leftovers(self) -> list[Path]:
        return list(open_blob_store(self.settings.blobs).scratch_folder.glob("*.tmp"))

    async def assert_whole(self) -> None:
        """Assert that every recorded file exists and has the recorded hash and size."""
        for _, path, sha256, size in await self.artifacts():
            data = self.read(path)
            assert (hashlib.sha256(data).hexdigest(), len(data)) == (sha256, size), path


def statuses(content: Sequence[dict[str, Any]]) -> list[str]:
    return [one["status"] for one in content]
