"""Distributions: a job of inputs that are known to fit their dataset, and what has become of them."""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict
from uuid import UUID

from tidemill.config_file import load_section
from tidemill.core.errors import Conflict, InvalidInput, UnknownResource
from tidemill.core.file_format import Compression, FileFormat, OutputFileSpec
from tidemill.core.item_error import ItemError
from tidemill.core.job import Job
from tidemill.core.json_types import JsonObject
from tidemill.core.kinds import DISTRIBUTION_KIND
from tidemill.core.list_pages import Page
from tidemill.core.principal import Principal, Role
from tidemill.core.status import ItemStatus
from tidemill.core.suggest import suggest_similar
from tidemill.distributions import artifact_records
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
    build_artifact_name,
)
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.jobs import queries
from tidemill.jobs.staged_files import DownloadInfo
from tidemill.jobs.submission import submit_job
from tidemill.runtime import KindHooks, Runtime
from tidemill.store.database import Database
from tidemill.store.item_records import read_shown_inputs
from tidemill.store.job_submission import Submission, find_repeated_submission

FAIL_FAST_POLICY = {"mode": "fail_fast"}


@dataclass(frozen=True, slots=True)
class DistributionSpec:
    """What somebody asks for; what they do not say is the dataset's to say, or the settings'."""

    dataset: str
    inputs: Sequence[Any]
    reuse_enabled: bool | None = None
    reuse_days: int | None = None
    format: FileFormat | None = None
    compression: Compression | None = None


class DistributionUseCases:
    """The datasets of a process, and the door to ask for files of them."""

    def __init__(self, datasets: Mapping[str, Dataset], *, reuse: ReusePolicy, max_inputs: int) -> None:
        self._datasets = datasets
        self._reuse = reuse
        self._max_inputs = max_inputs

    def list_datasets(self, role: Role) -> list[Dataset]:
        """Those that a role may ask for."""
        return [one for one in self._datasets.values() if one.is_allowed_for(role)]

    def is_dataset_allowed(self, role: Role, name: str) -> bool:
        return name in self._datasets and self._datasets[name].is_allowed_for(role)

    def get_dataset(self, name: str, role: Role) -> Dataset:
        """One that is not for this role is as unknown as one that is not there."""
        known = {one.name: one for one in self.list_datasets(role)}
        if name not in known:
            raise InvalidDistributionInputs(
                [(("dataset",), f"there is no dataset {name!r}{suggest_similar(name, known)}")]
            )
        return known[name]

    async def submit(
        self, db: Database, spec: Submission, distribution: DistributionSpec, role: Role
    ) -> tuple[UUID, bool]:
        """The job, and whether it is new. InvalidInputs with what is wrong: then nothing was made."""
        spec = replace(spec, kind=DISTRIBUTION_KIND, policy=spec.policy or FAIL_FAST_POLICY)
        if spec.idem_key is not None:  # it stands for what was said, whatever has become of the dataset
            spec = replace(spec, idem_print=await asyncio.to_thread(_fingerprint_inputs, distribution.inputs))
            made = await db.run(find_repeated_submission, spec)
            if made is not None:
                return made, False
        dataset = self.get_dataset(distribution.dataset, role)
        form = _choose_form(dataset, distribution)
        inputs = await asyncio.to_thread(
            self._parse_inputs, dataset, distribution.inputs, form
        )  # 100,000 take a second or two
        reuse = ReusePolicy(
            enabled=self._reuse.enabled if distribution.reuse_enabled is None else distribution.reuse_enabled,
            days=self._reuse.days if distribution.reuse_days is None else distribution.reuse_days,
        )
        request = DistributionRequest(dataset.name, reuse, form.format, form.compression)
        spec = replace(spec, params=request.params, columns=DISTRIBUTION_COLUMNS)
        return await submit_job(db, spec, (one.text.encode() for one in inputs), built_in=True)

    async def parse_fixed_input(self, db: Database, job: Job, seq: int, input_: Any) -> Any:
        """An input instead of one that failed, as it is kept. Two that are the same would share a file."""
        dataset = self._datasets.get(DistributionRequest.from_params(job.params).dataset)
        if dataset is None:
            raise Conflict("its dataset is not declared any more")
        try:
            read = DistributionInput.parse(dataset.fields, input_)
        except InvalidDistributionInputs as error:
            raise InvalidDistributionInputs([(("input", *where), reason) for where, reason in error.faults]) from None
        if await db.read(artifact_records.has_other_item_with_input, job.id, seq, read.text):
            raise Conflict("another input of the distribution is the same")
        return read.values

    def _parse_inputs(self, dataset: Dataset, given: Sequence[Any], form: OutputFileSpec) -> list[DistributionInput]:
        if not given:
            raise InvalidDistributionInputs([(("inputs",), "there is no input")])
        if len(given) > self._max_inputs:
            raise InvalidDistributionInputs(
                [(("inputs",), f"{len(given)} inputs are more than the {self._max_inputs} allowed")]
            )
        found: list[DistributionInput] = []
        faults = InputFaults()
        seen, called = dict[str, int](), dict[str, int]()
        for place, one in enumerate(given):
            try:
                read = DistributionInput.parse(dataset.fields, one)
            except InvalidDistributionInputs as error:
                faults += [(("inputs", place, *where), reason) for where, reason in error.faults]
            else:
                first = seen.setdefault(read.text, place)
                # Names are unique but for an accident of a hash; that must not cost anybody a file.
                namesake = called.setdefault(build_artifact_name(read, form.suffix).lower(), place)
                if first != place:
                    faults.append((("inputs", place), f"the same as input {first + 1}"))
                elif namesake != place:
                    faults.append((("inputs", place), f"its file would have the name of that of input {namesake + 1}"))
                found.append(read)
            if len(faults) >= FAULTS_REPORTED_MAX:
                break
        if faults:
            raise InvalidDistributionInputs(faults[:FAULTS_REPORTED_MAX])
        return found


def _fingerprint_inputs(inputs: Sequence[Any]) -> bytes:
    """Of inputs as they were said; in which order an object has its fields says nothing."""
    digest = hashlib.sha256()
    for one in inputs:
        text = json.dumps(one, sort_keys=True).encode()
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.digest()


def get_distribution_request(job: Job) -> DistributionRequest:
    return DistributionRequest.from_params(job.params)


class InputView(TypedDict):
    """An input of a distribution, and what became of it."""

    input: JsonObject
    status: str
    attempts: int
    path: str | None
    download_url: str | None
    rows: int | None
    size: int | None
    sha256: str | None
    reused: bool | None
    error: ItemError | None


async def list_distribution_inputs(db: Database, job_id: UUID, *, limit: int, after: object = None) -> Page[InputView]:
    """A page of a distribution's inputs, in their order: each with its fields and what has become of it."""
    page = await queries.list_items(db, job_id, limit=limit, after=after)
    inputs = await db.run(read_shown_inputs, job_id, [item["seq"] for item in page.items])
    return Page([_build_input_view(job_id, item, inputs.get(item["seq"])) for item in page.items], page.after)


async def get_artifact_info(db: Database, blobs: BlobStore, job: Job, seq: int) -> DownloadInfo:
    """Of the file of one input; Conflict says why there is none."""
    item = await queries.get_item(db, job.id, seq)
    made = item["result"]
    if item["status"] != ItemStatus.DONE:
        raise Conflict(f"input {seq + 1} of {job.key} is {item['status']}: it has no file")
    name = await asyncio.to_thread(blobs.name_from_url, made["path"])
    if name is None:
        raise Conflict(f"the file of input {seq + 1} of {job.key} is in another store: {made['path']}")
    request = get_distribution_request(job)
    form = OutputFileSpec(request.format, (), request.compression)
    return DownloadInfo(name, made["name"], made["size"], made["sha256"], form.content_type)


def make_artifact_gone_error(job: Job, seq: int) -> Conflict:
    return Conflict(f"the file of input {seq + 1} of {job.key} is gone; ask for it again")


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


def _choose_form(dataset: Dataset, distribution: DistributionSpec) -> OutputFileSpec:
    try:
        return dataset.choose_form(distribution.format, distribution.compression)
    except InvalidInput as error:
        raise InvalidDistributionInputs([(("compression",), str(error))]) from None


def load_datasets(runtime: Runtime) -> Mapping[str, Dataset]:
    """The datasets of ``tidemill.toml`` and of the mill; InvalidSettings with every mistake."""
    from tidemill.distributions.config import parse_datasets  # noqa: PLC0415  most processes declare none

    declared = runtime.declarations
    found = parse_datasets({"datasets": declared.datasets}, declared.dataset_functions)
    return load_section(runtime.settings.config, parse_datasets) | found


def make_distribution_use_cases(runtime: Runtime) -> DistributionUseCases:
    settings = runtime.settings
    reuse = ReusePolicy(settings.reuse_enabled, settings.reuse_days)
    return DistributionUseCases(runtime.get(load_datasets), reuse=reuse, max_inputs=settings.max_distribution_inputs)


def _get_target(job: Job) -> str | None:
    dataset: str = job.params["dataset"]
    return dataset


async def _authorize(runtime: Runtime, user: Principal, dataset: str) -> None:
    if not runtime.get(make_distribution_use_cases).is_dataset_allowed(user.role, dataset):
        raise UnknownResource(f"there is no dataset {dataset!r}")


async def _parse_fix(runtime: Runtime, job: Job, seq: int, fixed: Any) -> Any:
    return await runtime.get(make_distribution_use_cases).parse_fixed_input(runtime.db, job, seq, fixed)


DISTRIBUTION_HOOKS = KindHooks(get_target=_get_target, authorize=_authorize, parse_fix=_parse_fix)
