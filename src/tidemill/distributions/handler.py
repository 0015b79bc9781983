"""Runs distributions: reuses or generates the file of each input."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from uuid import UUID

from tidemill.core.coalescers import Coalescer
from tidemill.core.errors import InvalidInput, QuotaExceeded, StorageAccessDenied, StorageUnavailable
from tidemill.core.file_format import OutputFileSpec
from tidemill.core.job import Item
from tidemill.core.kinds import DISTRIBUTION_KIND, Handler
from tidemill.core.outcome import Fail, Retry, Wait
from tidemill.core.policies import RetryPolicy
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.core.quotas import UNLIMITED, Quota
from tidemill.distributions import artifact_records
from tidemill.distributions.artifact_producer import ArtifactProducer
from tidemill.distributions.artifact_records import ArtifactKey, ArtifactLookup, DistributionJob
from tidemill.distributions.artifact_storage import ArtifactUpload, BlobExistenceCache
from tidemill.distributions.dataset import Dataset, DistributionInput, InvalidDistributionInputs, parse_yyyymmdd
from tidemill.distributions.distribution_request import (
    DISTRIBUTION_COLUMNS,
    Artifact,
    DistributedFile,
    DistributionRequest,
    build_artifact_folder_of_job,
    build_file_name_of_input,
    decide_artifact_reuse,
)
from tidemill.distributions.use_cases import load_datasets
from tidemill.failpoints import failpoint
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.runtime import Runtime
from tidemill.store import quota_records
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

DISTRIBUTION_CONCURRENCY = 100
ARTIFACT_STORE_THREADS = 32
DISTRIBUTION_JOBS_CACHED_MAX = 64
STORAGE_USE_MAX_AGE_S = 1.0
SETTLED_CHECK_AFTER_S = 1.0  # no lease is shorter, so a faster attempt still holds its lease


@dataclass(frozen=True, slots=True)
class DistributionOptions:
    max_attempts: int = 5
    backoff: float = 1.0
    timeout_s: float = 300.0  # per file
    max_queries: int = 4  # concurrent queries per process
    quota: Quota = UNLIMITED  # of users for whom no other limits are set


def make_distribution_handler(runtime: Runtime) -> Handler:
    settings = runtime.settings
    options = DistributionOptions(
        max_attempts=settings.distribution_max_attempts,
        backoff=settings.distribution_backoff_ms / 1000,
        timeout_s=settings.distribution_timeout_s,
        max_queries=max(1, settings.db_max_conns // 2),
        quota=settings.default_quota,
    )
    retry = RetryPolicy(max_attempts=options.max_attempts, backoff=options.backoff)
    datasets = runtime.get(load_datasets)
    runner = DistributionRunner(runtime.db, runtime.blobs, datasets, options)
    fingerprints = {dataset.name: dataset.fingerprint for dataset in datasets.values()}
    return Handler(
        DISTRIBUTION_KIND,
        runner.process_input,
        "async",
        concurrency=DISTRIBUTION_CONCURRENCY,
        gate=runner.query_gate,
        timeout=options.timeout_s,
        retry=retry,
        columns=DISTRIBUTION_COLUMNS,
        provides=frozenset(dataset.requirement for dataset in datasets.values()),
        after_flush=partial(artifact_records.record_artifacts_and_count_reuse, fingerprints=fingerprints),
    )


@dataclass(frozen=True, slots=True)
class _PreparedJob:
    """The owner, the request, the dataset and the folder of one job."""

    owner_id: int
    request: DistributionRequest
    dataset: Dataset
    form: OutputFileSpec
    folder: str


class _StorageUse(NamedTuple):
    """The limits of a user, and the bytes that the user stored at a monotonic time."""

    read_at: float
    quota: Quota
    stored_bytes: int


class _StorageQuotas:
    """Checks whether the owners of distributions may store more files.

    The use is read every STORAGE_USE_MAX_AGE_S, so the files that are generated meanwhile may exceed the quota.
    """

    def __init__(self, db: Database, defaults: Quota) -> None:
        self._db = db
        self._defaults = defaults
        self._reads: Coalescer[int, _StorageUse] = Coalescer(self._read_uses)
        self._known: dict[int, _StorageUse] = {}

    async def check(self, owner_id: int) -> None:
        """Raise QuotaExceeded if the owner has reached the quota of stored bytes."""
        if owner_id == LOCAL_USER_ID:
            return
        use = self._known.get(owner_id)
        if use is None or time.monotonic() - use.read_at > STORAGE_USE_MAX_AGE_S:
            use = await self._reads.get(owner_id)
        use.quota.check_file(use.stored_bytes, 0)

    async def _read_uses(self, owner_ids: Sequence[int]) -> list[_StorageUse]:
        return [await self._read_and_cache_use(owner_id) for owner_id in owner_ids]

    async def _read_and_cache_use(self, owner_id: int) -> _StorageUse:
        quota = await self._db.read(quota_records.read_quota, owner_id, self._defaults)
        stored = 0 if quota.is_unlimited else await self._db.read(quota_records.count_stored_bytes, owner_id)
        self._known.pop(owner_id, None)
        while len(self._known) >= DISTRIBUTION_JOBS_CACHED_MAX:
            del self._known[next(iter(self._known))]
        use = self._known[owner_id] = _StorageUse(time.monotonic(), quota, stored)
        return use


class DistributionRunner:
    def __init__(
        self, db: Database, blobs: BlobStore, datasets: Mapping[str, Dataset], options: DistributionOptions
    ) -> None:
        self._quotas = _StorageQuotas(db, options.quota)
        self._db = db
        self._blobs = blobs
        self._datasets = datasets
        self._options = options
        self._jobs_by_id: dict[UUID, _PreparedJob] = {}
        self._threads = ThreadPoolExecutor(ARTIFACT_STORE_THREADS, "distribute")
        self._artifact_lookups: Coalescer[ArtifactKey, ArtifactLookup] = Coalescer(
            lambda keys: db.read(artifact_records.find_artifacts, keys)
        )
        self._job_lookups: Coalescer[UUID, DistributionJob | None] = Coalescer(self._find_jobs)
        self._existence = BlobExistenceCache(blobs, self._threads)
        self._producer = ArtifactProducer(db, max_queries=options.max_queries, timeout_s=options.timeout_s)
        self.query_gate = self._producer.query_gate

    async def process_input(self, item: Item) -> DistributedFile:
        order = self._jobs_by_id.get(item.job_id) or await self._read_and_prepare_job(item.job_id)
        try:
            given = DistributionInput.parse(order.dataset.fields, item.input)
        except InvalidDistributionInputs as error:
            raise _make_invalid_input_failure(error) from None
        try:
            artifact = await self._find_reusable_artifact(order, given)
            if artifact is not None:
                return _build_item_result(order, given, artifact, reused=True)
            await self._quotas.check(order.owner_id)
            return _build_item_result(order, given, await self._generate_artifact(order, given, item), reused=False)
        except StorageUnavailable as error:
            # An outage is no failure of the input: as for a throttled call, the first attempts do not count.
            raise Retry(str(error), code="store_unavailable", throttled=True) from error
        except QuotaExceeded as error:
            raise Fail(str(error), code="quota_exceeded", retryable=True) from error
        except StorageAccessDenied as error:
            raise Fail(str(error), code="store_denied", retryable=True) from error
        except InvalidInput as error:  # such as a format that this worker cannot write
            raise Fail(str(error), code="invalid", retryable=True) from error

    async def _find_reusable_artifact(self, order: _PreparedJob, given: DistributionInput) -> Artifact | None:
        """Return the existing file of an input if it can be reused; otherwise None."""
        reuse, dataset = order.request.reuse, order.dataset
        if not reuse.enabled or dataset.date_field is None:
            return None
        lookup = await self._artifact_lookups.get((dataset.name, dataset.fingerprint, given.key))
        artifact = lookup.artifact
        if artifact is not None and artifact.format != order.form.suffix.lstrip("."):
            artifact = None
        day = given.values[dataset.date_field]
        decision = decide_artifact_reuse(
            enabled=reuse.enabled,
            artifact=artifact,
            effective_date=parse_yyyymmdd(day) if isinstance(day, int) else None,
            today=lookup.today,
            days=reuse.days,
        )
        if decision == "generate" or artifact is None or not await self._artifact_exists(artifact, dataset):
            return None
        return artifact

    async def _artifact_exists(self, artifact: Artifact, dataset: Dataset) -> bool:
        name = self._blobs.name_from_url(artifact.path)
        exists = name is not None and await self._existence.exists(name)
        if not exists:
            emit("artifact.gone", dataset=dataset.name, path=artifact.path)
        return exists

    async def _generate_artifact(self, order: _PreparedJob, given: DistributionInput, item: Item) -> Artifact:
        name, started = f"{order.folder}/{build_file_name_of_input(given, order.form.suffix)}", time.monotonic()
        out = ArtifactUpload(self._blobs, name, order.form, self._threads)
        try:
            rows = await self._producer.write_artifact_rows(order.dataset, given, out)
            if time.monotonic() - started > SETTLED_CHECK_AFTER_S:
                await self._raise_wait_if_settled(item)
            failpoint("distribution.rows_written")
            blob = await out.finish()
            failpoint("distribution.file_finished")
        except BaseException:
            await out.abandon()
            raise
        return Artifact(self._blobs.url(name), rows, blob.size, blob.sha256.hex(), order.form.suffix.lstrip("."))

    async def _raise_wait_if_settled(self, item: Item) -> None:
        """Raise Wait if another attempt has settled the item, so that a late attempt does not overwrite its file."""
        if await self._db.read(artifact_records.is_item_settled_or_deleted, item.job_id, item.seq):
            raise Wait("Another attempt has already produced the outcome of this input", after=1.0, code="unwanted")

    async def _find_jobs(self, job_ids: Sequence[UUID]) -> list[DistributionJob | None]:
        """Return the jobs with these ids. Items of a job that start together share one query."""
        return [await self._db.read(artifact_records.find_distribution_job, job_id) for job_id in job_ids]

    async def _read_and_prepare_job(self, job_id: UUID) -> _PreparedJob:
        job = await self._job_lookups.get(job_id)
        if job is None:
            raise Fail("The job was deleted", code="job_gone")
        request = DistributionRequest.from_params(job.params)
        dataset = self._datasets.get(request.dataset)
        if dataset is None:
            raise Fail(
                f'Unknown dataset "{request.dataset}". Use the same tidemill.toml and mill for the worker and the API.',
                code="unknown_dataset",
                retryable=True,
            )
        try:
            form = OutputFileSpec(request.format, (), request.compression)
        except InvalidInput as error:
            raise Fail(str(error), code="invalid") from None
        while len(self._jobs_by_id) >= DISTRIBUTION_JOBS_CACHED_MAX:
            del self._jobs_by_id[next(iter(self._jobs_by_id))]
        order = self._jobs_by_id[job_id] = _PreparedJob(
            job.owner_id, request, dataset, form, build_artifact_folder_of_job(job.key, job.created_at)
        )
        return order


def _build_item_result(
    order: _PreparedJob, given: DistributionInput, artifact: Artifact, *, reused: bool
) -> DistributedFile:
    return {
        "path": artifact.path,
        "name": artifact.path.rpartition("/")[2],
        "rows": artifact.rows,
        "size": artifact.size,
        "sha256": artifact.sha256,
        "format": artifact.format,
        "reused": reused,
        "dataset": order.dataset.name,
        "input_key": given.key,
    }


def _make_invalid_input_failure(error: InvalidDistributionInputs) -> Fail:
    """Return the failure for an input that is invalid in the worker's declaration of the dataset."""
    path, reason = error.faults[0]
    details = {"field": str(path[0])} if path else {}
    return Fail(f"{path[0]}: {reason}" if path else reason, code="invalid", details=details)
