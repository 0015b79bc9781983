"""One input, one file: looked for first, if that is wanted, and made if it is not there."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidemill.connectors.blobs import Blobs
from tidemill.domain.distribution import (
    COLUMNS,
    KIND,
    Artifact,
    Dataset,
    DistributionRequest,
    Input,
    InvalidInputs,
    decide,
    file_name,
    folder_of,
)
from tidemill.domain.distribution.fields import day_of
from tidemill.domain.errors import InvalidInput, StoreDenied, StoreUnavailable
from tidemill.domain.form import Form
from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.domain.outcome import Fail, Retry, Wait
from tidemill.domain.retry import RetryPolicy
from tidemill.handlers.distribution.outgoing import Outgoing
from tidemill.handlers.distribution.presence import Presence
from tidemill.handlers.distribution.produce import Producer
from tidemill.handlers.together import Together
from tidemill.store import artifacts
from tidemill.store.artifacts import ArtifactKey, Found, Order
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

CONCURRENCY = 100
THREADS = 32  # that wait for the store
JOBS_KEPT = 64
LATE_S = 1.0  # no lease is shorter: whoever was quicker has not lost his


@dataclass(frozen=True, slots=True)
class DistributionOptions:
    max_attempts: int = 5
    backoff: float = 1.0
    seconds: float = 300.0  # for one file
    queries: int = 4  # at once, in a process


def distribution_handler(
    db: Database, blobs: Blobs, datasets: Mapping[str, Dataset], options: DistributionOptions
) -> Handler:
    retry = RetryPolicy(max_attempts=options.max_attempts, backoff=options.backoff)
    call = Distributor(db, blobs, datasets, options).run
    return Handler(KIND, call, "async", concurrency=CONCURRENCY, timeout=options.seconds, retry=retry, columns=COLUMNS)


@dataclass(frozen=True, slots=True)
class _Order:
    """What one job wants of its dataset, and where its files go."""

    request: DistributionRequest
    dataset: Dataset
    form: Form
    folder: str


class Distributor:
    def __init__(
        self, db: Database, blobs: Blobs, datasets: Mapping[str, Dataset], options: DistributionOptions
    ) -> None:
        self._db = db
        self._blobs = blobs
        self._datasets = datasets
        self._options = options
        self._orders: dict[UUID, _Order] = {}
        self._threads = ThreadPoolExecutor(THREADS, "distribute")
        self._registry: Together[ArtifactKey, Found] = Together(lambda keys: db.run(artifacts.find, keys))
        self._jobs: Together[UUID, Order | None] = Together(self._find_orders)
        self._presence = Presence(blobs, self._threads)
        self._producer = Producer(db, at_once=options.queries, seconds=options.seconds)

    async def run(self, item: Item) -> dict[str, Any]:
        order = self._orders.get(item.job_id) or await self._order(item.job_id)
        try:
            given = Input.read(order.dataset.fields, item.input)
        except InvalidInputs as error:
            raise _invalid(error) from None
        about = {"dataset": order.dataset.name, "input_key": given.key}
        try:
            reused = await self._reusable(order, given, about["input_key"])
            return (reused or await self._generate(order, given, item)) | about
        except StoreUnavailable as error:
            raise Retry(str(error), code="store_unavailable") from error
        except StoreDenied as error:
            raise Fail(str(error), code="store_denied", retryable=True) from error
        except InvalidInput as error:  # a format that this worker cannot write
            raise Fail(str(error), code="invalid", retryable=True) from error

    async def _reusable(self, order: _Order, given: Input, key: str) -> dict[str, Any] | None:
        """The file that was made before, if it will do."""
        reuse, dataset = order.request.reuse, order.dataset
        if not reuse.enabled or dataset.date_field is None:
            return None
        found = await self._registry.ask((dataset.name, key))
        artifact = found.artifact
        if artifact is not None and artifact.format != order.form.ending.lstrip("."):
            artifact = None
        day = given.values[dataset.date_field]
        decision = decide(
            enabled=reuse.enabled,
            artifact=artifact,
            effective_date=day_of(day) if isinstance(day, int) else None,
            today=found.today,
            days=reuse.days,
        )
        if decision == "generate" or artifact is None or not await self._is_there(artifact, dataset):
            return None
        return _result(artifact, reused=True)

    async def _is_there(self, artifact: Artifact, dataset: Dataset) -> bool:
        name = self._blobs.name_of(artifact.path)
        is_there = name is not None and await self._presence.has(name)
        if not is_there:
            emit("artifact.gone", dataset=dataset.name, path=artifact.path)
        return is_there

    async def _generate(self, order: _Order, given: Input, item: Item) -> dict[str, Any]:
        name, started = f"{order.folder}/{file_name(given, order.form.ending)}", time.monotonic()
        out = Outgoing(self._blobs, name, order.form, self._threads)
        try:
            rows = await self._producer.produce(order.dataset, given, out)
            if time.monotonic() - started > LATE_S:
                await self._insist(item)
            blob = await out.finish()
        except BaseException:
            await out.abandon()
            raise
        made = Artifact(self._blobs.url(name), rows, blob.size, blob.sha256.hex(), order.form.ending.lstrip("."))
        return _result(made, reused=False)

    async def _insist(self, item: Item) -> None:
        """Every attempt writes to the same place: one that was stopped for long must not replace its successor's."""
        if await self._db.run(artifacts.is_settled, item.job_id, item.seq):
            raise Wait("somebody else has settled this input", after=1.0, code="unwanted")

    async def _find_orders(self, job_ids: Sequence[UUID]) -> list[Order | None]:
        """Once for all items of a job, which begin together."""
        return [await self._db.run(artifacts.find_order, job_id) for job_id in job_ids]

    async def _order(self, job_id: UUID) -> _Order:
        found = await self._jobs.ask(job_id)
        if found is None:
            raise Fail("the job is gone", code="job_gone")
        request = DistributionRequest.of(found.params)
        dataset = self._datasets.get(request.dataset)
        if dataset is None:
            raise Fail(
                f"the worker knows no dataset {request.dataset!r}: it reads another tidemill.toml, or another mill",
                code="unknown_dataset",
                retryable=True,
            )
        try:
            form = Form(request.format, (), request.compression)
        except InvalidInput as error:
            raise Fail(str(error), code="invalid") from None
        while len(self._orders) >= JOBS_KEPT:
            del self._orders[next(iter(self._orders))]
        order = self._orders[job_id] = _Order(request, dataset, form, folder_of(found.key, found.created_at))
        return order


def _result(artifact: Artifact, *, reused: bool) -> dict[str, Any]:
    return {
        "path": artifact.path,
        "name": artifact.path.rpartition("/")[2],
        "rows": artifact.rows,
        "size": artifact.size,
        "sha256": artifact.sha256,
        "format": artifact.format,
        "reused": reused,
    }


def _invalid(error: InvalidInputs) -> Fail:
    """An input that does not fit the dataset as this worker knows it: it was corrected by hand, or declared anew."""
    place, reason = error.faults[0]
    details = {"field": str(place[0])} if place else {}
    return Fail(f"{place[0]}: {reason}" if place else reason, code="invalid", details=details)
