"""Submits distributions, and reads their progress, inputs and files."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict
from uuid import UUID

from tidemill.core.errors import Conflict, InvalidInput, UnknownResource, format_suggestion
from tidemill.core.file_format import Compression, FileFormat, OutputFileSpec
from tidemill.core.job import Job
from tidemill.core.json_input import JsonObject
from tidemill.core.kinds import DISTRIBUTION_KIND
from tidemill.core.list_pages import PAGE_MAX_ROWS, Page
from tidemill.core.outcome import ErrorDetails
from tidemill.core.principal import Principal, Role
from tidemill.core.status import ItemStatus
from tidemill.distributions import artifact_records
from tidemill.distributions.artifact_records import DistributionProgress
from tidemill.distributions.dataset import (
    FAULTS_REPORTED_MAX,
    Dataset,
    DistributionInput,
    InputFaults,
    InvalidDistributionInputs,
)
from tidemill.distributions.distribution_request import (
    DISTRIBUTION_COLUMNS,
    DistributionRequest,
    ReusePolicy,
    build_file_name_of_input,
)
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.jobs import queries
from tidemill.jobs.staged_files import DownloadInfo
from tidemill.jobs.submission import submit_job
from tidemill.runtime import KindHooks, Runtime
from tidemill.store import job_records
from tidemill.store.database import Database
from tidemill.store.item_records import read_small_inputs
from tidemill.store.job_submission import Submission, find_repeated_submission

DEFAULT_POLICY = {"mode": "fail_fast"}
_LOCAL_DISTRIBUTION = Submission(DISTRIBUTION_KIND)


@dataclass(frozen=True, slots=True)
class DistributionSpec:
    """A request for one file per input. None means the default from the dataset or the settings."""

    dataset: str
    inputs: Sequence[Any]
    reuse_enabled: bool | None = None
    reuse_days: int | None = None
    format: FileFormat | None = None
    compression: Compression | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0

    @property
    def fingerprint_params(self) -> dict[str, Any]:
        """The values, besides inputs, policy and priority, that must be equal when an idempotency key is repeated."""
        return {
            "dataset": self.dataset,
            "reuse": {"enabled": self.reuse_enabled, "days": self.reuse_days},
            "format": self.format,
            "compression": self.compression,
        }


class DistributionUseCases:
    """Submits distributions of the datasets that this process declares."""

    def __init__(
        self, datasets: Mapping[str, Dataset], *, reuse: ReusePolicy, max_inputs: int, batch_size: int
    ) -> None:
        self._datasets = datasets
        self._reuse = reuse
        self._max_inputs = max_inputs
        self._batch_size = batch_size

    def list_datasets(self, role: Role) -> list[Dataset]:
        """Return the datasets that a role may use."""
        return [dataset for dataset in self._datasets.values() if dataset.is_allowed_for(role)]

    def is_dataset_allowed(self, role: Role, name: str) -> bool:
        return name in self._datasets and self._datasets[name].is_allowed_for(role)

    def get_dataset(self, name: str, role: Role) -> Dataset:
        """Return a dataset; raise InvalidDistributionInputs if it does not exist or the role may not use it."""
        known = {dataset.name: dataset for dataset in self.list_datasets(role)}
        if name not in known:
            hint = format_suggestion(name, known) or f". Declared datasets: {', '.join(known) or 'none'}"
            raise InvalidDistributionInputs([(("dataset",), f'unknown dataset "{name}"{hint}')])
        return known[name]

    async def submit(
        self, db: Database, wanted: DistributionSpec, role: Role, submission: Submission = _LOCAL_DISTRIBUTION
    ) -> tuple[UUID, bool]:
        """Submit a distribution; return its job id and whether it is new.

        ``submission`` has the owner and the idempotency key. A repeated key returns the job of the first request, even
        if the dataset has changed since.

        Raises:
            InvalidDistributionInputs: With every problem in the request; nothing is stored.
            IdempotencyKeyReused: The key was used for a different request.
            QuotaExceeded: The owner has reached a quota.
        """
        submission = replace(
            submission,
            kind=DISTRIBUTION_KIND,
            policy=dict(wanted.policy) or DEFAULT_POLICY,
            priority=wanted.priority,
            fingerprint_params=wanted.fingerprint_params,
            batch_size=self._batch_size,
            file_bytes=0,
        )
        if submission.idem_key is not None:
            fingerprint = await asyncio.to_thread(_fingerprint_inputs, wanted.inputs)
            submission = replace(submission, idem_print=fingerprint)
            existing = await db.run(find_repeated_submission, submission)
            if existing is not None:
                return existing, False
        dataset = self.get_dataset(wanted.dataset, role)
        form = _resolve_file_spec(dataset, wanted)
        # In a thread, because 100,000 inputs take one or two seconds.
        inputs = await asyncio.to_thread(self._parse_inputs, dataset, wanted.inputs, form)
        reuse = ReusePolicy(
            enabled=self._reuse.enabled if wanted.reuse_enabled is None else wanted.reuse_enabled,
            days=self._reuse.days if wanted.reuse_days is None else wanted.reuse_days,
        )
        request = DistributionRequest(dataset.name, reuse, form.format, form.compression)
        submission = replace(
            submission, params=request.params, columns=DISTRIBUTION_COLUMNS, requires=(dataset.requirement,)
        )
        return await submit_job(db, submission, (parsed.text.encode() for parsed in inputs), built_in=True)

    async def validate_fixed_input(self, db: Database, job: Job, seq: int, input_: Any) -> Any:
        """Return the normalized input of a fix; raise Conflict if another item has the same input."""
        dataset = self._datasets.get(DistributionRequest.from_params(job.params).dataset)
        if dataset is None:
            raise Conflict("The dataset of this distribution is no longer declared")
        try:
            parsed = DistributionInput.parse(dataset.fields, input_)
        except InvalidDistributionInputs as error:
            raise InvalidDistributionInputs([(("input", *path), reason) for path, reason in error.faults]) from None
        if await db.read(artifact_records.has_other_item_with_input, job.id, seq, parsed.text):
            raise Conflict("Another input of this distribution is identical")
        return parsed.values

    def _parse_inputs(self, dataset: Dataset, given: Sequence[Any], form: OutputFileSpec) -> list[DistributionInput]:
        if not given:
            raise InvalidDistributionInputs([(("inputs",), "must contain at least one input")])
        if len(given) > self._max_inputs:
            raise InvalidDistributionInputs(
                [(("inputs",), f"must contain at most {self._max_inputs} inputs, got {len(given)}")]
            )
        inputs: list[DistributionInput] = []
        faults = InputFaults()
        index_by_text, index_by_file_name = dict[str, int](), dict[str, int]()
        for index, value in enumerate(given):
            try:
                parsed = DistributionInput.parse(dataset.fields, value)
            except InvalidDistributionInputs as error:
                faults += [(("inputs", index, *path), reason) for path, reason in error.faults]
            else:
                same_text = index_by_text.setdefault(parsed.text, index)
                # File names are equal only if their hashes collide. One file would then replace the other.
                same_name = index_by_file_name.setdefault(build_file_name_of_input(parsed, form.suffix).lower(), index)
                if same_text != index:
                    faults.append((("inputs", index), f"duplicates input {same_text + 1}"))
                elif same_name != index:
                    faults.append((("inputs", index), f"has the same file name as input {same_name + 1}"))
                inputs.append(parsed)
            if len(faults) >= FAULTS_REPORTED_MAX:
                break
        if faults:
            raise InvalidDistributionInputs(faults[:FAULTS_REPORTED_MAX])
        return inputs


def _fingerprint_inputs(inputs: Sequence[Any]) -> bytes:
    """Return a hash of the inputs as sent by the client; the order of their fields does not matter."""
    digest = hashlib.sha256()
    for value in inputs:
        text = json.dumps(value, sort_keys=True).encode()
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution: its job, its request and the progress of its files."""

    job: Job
    request: DistributionRequest
    files: DistributionProgress


async def read_distributions(db: Database, jobs: Sequence[Job]) -> list[Distribution]:
    """Return the distributions of these jobs, in the same order."""
    files = await db.read(artifact_records.read_distribution_progress_by_job, [job.id for job in jobs]) if jobs else {}
    return [
        Distribution(job, DistributionRequest.from_params(job.params), files.get(job.id, DistributionProgress()))
        for job in jobs
    ]


async def read_distribution(db: Database, job_id: UUID) -> Distribution:
    """Return the current state of one distribution."""
    return (await read_distributions(db, [await db.read(job_records.get_job, job_id)]))[0]


class InputView(TypedDict):
    """An input of a distribution, with its status and its file or error."""

    input: JsonObject
    status: str
    attempts: int
    path: str | None
    download_url: str | None
    rows: int | None
    size: int | None
    sha256: str | None
    reused: bool | None
    error: ErrorDetails | None


async def list_distribution_inputs(db: Database, job_id: UUID, *, limit: int, after: object = None) -> Page[InputView]:
    """Return a page of a distribution's inputs, in request order, with their fields, statuses, and files or errors."""
    page = await queries.list_items(db, job_id, limit=limit, after=after)
    inputs = await db.run(read_small_inputs, job_id, [item["seq"] for item in page.items])
    return Page([_build_input_view(job_id, item, inputs.get(item["seq"])) for item in page.items], page.after)


async def iterate_distribution_inputs(db: Database, job_id: UUID) -> AsyncGenerator[InputView]:
    """Yield all inputs of a distribution, as ``list_distribution_inputs`` returns them, read page by page."""
    after: object = None
    has_more = True
    while has_more:
        page = await list_distribution_inputs(db, job_id, limit=PAGE_MAX_ROWS, after=after)
        for view in page.items:
            yield view
        after = page.after
        has_more = after is not None


async def read_file_info_of_input(db: Database, blobs: BlobStore, job: Job, seq: int) -> DownloadInfo:
    """Return the name, size and content type of the file of one input; raise Conflict if it has no file."""
    item = await queries.get_item(db, job.id, seq)
    result = item["result"]
    if item["status"] != ItemStatus.DONE:
        raise Conflict(f"Input {seq + 1} of {job.key} has no file (status: {item['status']})")
    name = await asyncio.to_thread(blobs.name_from_url, result["path"])
    if name is None:
        raise Conflict(f"The file of input {seq + 1} of {job.key} is in another blob store: {result['path']}")
    request = DistributionRequest.from_params(job.params)
    form = OutputFileSpec(request.format, (), request.compression)
    return DownloadInfo(name, result["name"], result["size"], result["sha256"], form.content_type)


def make_input_file_gone_error(job: Job, seq: int) -> Conflict:
    return Conflict(
        f"The file of input {seq + 1} of {job.key} no longer exists. Submit the input in a new distribution."
    )


def _build_input_view(job_id: UUID, item: Mapping[str, Any], given: Any) -> InputView:
    result, error = item["result"] or {}, item["error"] or {}
    is_done = item["status"] == "done"
    return {
        "input": given if isinstance(given, dict) else {},
        "status": item["status"],
        "attempts": item["attempts"],
        "path": result.get("path") if is_done else None,
        "download_url": f"/v1/distributions/{job_id}/files/{item['seq']}" if is_done else None,
        "rows": result.get("rows") if is_done else None,
        "size": result.get("size") if is_done else None,
        "sha256": result.get("sha256") if is_done else None,
        "reused": result.get("reused") if is_done else None,
        "error": None if is_done or not error else {"code": error["code"], "reason": error["reason"]},
    }


def _resolve_file_spec(dataset: Dataset, wanted: DistributionSpec) -> OutputFileSpec:
    try:
        return dataset.resolve_file_spec(wanted.format, wanted.compression)
    except InvalidInput as error:
        raise InvalidDistributionInputs([(("compression",), str(error))]) from None


def load_datasets(runtime: Runtime) -> Mapping[str, Dataset]:
    """Return the datasets of ``tidemill.toml`` and of the mill; raise InvalidSettings with every problem."""
    from tidemill.distributions.config import parse_datasets  # noqa: PLC0415  most processes declare none

    declared = runtime.declarations
    datasets_of_mill = parse_datasets({"datasets": declared.datasets}, declared.dataset_functions)
    return runtime.load_section(parse_datasets) | datasets_of_mill


def make_distribution_use_cases(runtime: Runtime) -> DistributionUseCases:
    settings = runtime.settings
    reuse = ReusePolicy(settings.reuse_enabled, settings.reuse_days)
    return DistributionUseCases(
        runtime.get(load_datasets),
        reuse=reuse,
        max_inputs=settings.max_distribution_inputs,
        batch_size=settings.claim_max,
    )


def _get_dataset_name_of_job(job: Job) -> str | None:
    dataset: str = job.params["dataset"]
    return dataset


async def _check_dataset_allowed(runtime: Runtime, user: Principal, dataset: str) -> None:
    if not runtime.get(make_distribution_use_cases).is_dataset_allowed(user.role, dataset):
        raise UnknownResource(f'Unknown dataset "{dataset}"')


async def _validate_fix(runtime: Runtime, job: Job, seq: int, fixed: Any) -> Any:
    return await runtime.get(make_distribution_use_cases).validate_fixed_input(runtime.db, job, seq, fixed)


DISTRIBUTION_HOOKS = KindHooks(
    get_target=_get_dataset_name_of_job,
    authorize=_check_dataset_allowed,
    parse_fix=_validate_fix,
    # Other jobs reuse the file and identify it by its hash, so its content must not change.
    done_refusal="Existing files are never changed. Submit a new distribution to regenerate them.",
)
