"""Distributions: a job of inputs that are known to fit their dataset, and what has become of them."""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from tidemill.connectors.blobs import Blobs
from tidemill.domain.declaration.suggest import did_you_mean
from tidemill.domain.distribution import (
    COLUMNS,
    KIND,
    Dataset,
    DistributionRequest,
    Faults,
    Input,
    InvalidInputs,
    Reuse,
    file_name,
)
from tidemill.domain.distribution.fields import FAULTS_MAX
from tidemill.domain.errors import Conflict, InvalidInput
from tidemill.domain.form import Compression, FileFormat, Form
from tidemill.domain.identity import Role
from tidemill.domain.job import Job
from tidemill.domain.page import Page
from tidemill.domain.status import ItemStatus
from tidemill.operations import inspect
from tidemill.operations.export import FileFacts
from tidemill.operations.submit import submit
from tidemill.store import artifacts, results
from tidemill.store.database import Database
from tidemill.store.submit import Submission, find_repeated

FAIL_FAST = {"mode": "fail_fast"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for; what they do not say is the dataset's to say, or the settings'."""

    dataset: str
    inputs: Sequence[Any]
    reuse_enabled: bool | None = None
    reuse_days: int | None = None
    format: FileFormat | None = None
    compression: Compression | None = None


class Distributions:
    """The datasets of a process, and the door to ask for files of them."""

    def __init__(self, datasets: Mapping[str, Dataset], *, reuse: Reuse, max_inputs: int) -> None:
        self._datasets = datasets
        self._reuse = reuse
        self._max_inputs = max_inputs

    def of(self, role: Role) -> list[Dataset]:
        """Those that a role may ask for."""
        return [one for one in self._datasets.values() if one.is_for(role)]

    def is_for(self, role: Role, name: str) -> bool:
        return name in self._datasets and self._datasets[name].is_for(role)

    def find(self, name: str, role: Role) -> Dataset:
        """One that is not for this role is as unknown as one that is not there."""
        known = {one.name: one for one in self.of(role)}
        if name not in known:
            raise InvalidInputs([(("dataset",), f"there is no dataset {name!r}{did_you_mean(name, known)}")])
        return known[name]

    async def submit(self, db: Database, spec: Submission, wanted: Wanted, role: Role) -> tuple[UUID, bool]:
        """The job, and whether it is new. InvalidInputs with what is wrong: then nothing was made."""
        spec = replace(spec, kind=KIND, policy=spec.policy or FAIL_FAST)
        if spec.idem_key is not None:  # it stands for what was said, whatever has become of the dataset
            spec = replace(spec, idem_print=await asyncio.to_thread(_print, wanted.inputs))
            made = await db.run(find_repeated, spec)
            if made is not None:
                return made, False
        dataset = self.find(wanted.dataset, role)
        form = _form(dataset, wanted)
        inputs = await asyncio.to_thread(self._read, dataset, wanted.inputs, form)  # 100,000 take a second or two
        reuse = Reuse(
            enabled=self._reuse.enabled if wanted.reuse_enabled is None else wanted.reuse_enabled,
            days=self._reuse.days if wanted.reuse_days is None else wanted.reuse_days,
        )
        request = DistributionRequest(dataset.name, reuse, form.format, form.compression)
        spec = replace(spec, params=request.params, columns=COLUMNS)
        return await submit(db, spec, (one.text.encode() for one in inputs), built_in=True)

    async def corrected(self, db: Database, job: Job, seq: int, given: Any) -> Any:
        """An input instead of one that failed, as it is kept. Two that are the same would share a file."""
        dataset = self._datasets.get(DistributionRequest.of(job.params).dataset)
        if dataset is None:
            raise Conflict("its dataset is not declared any more")
        try:
            read = Input.read(dataset.fields, given)
        except InvalidInputs as error:
            raise InvalidInputs([(("input", *where), reason) for where, reason in error.faults]) from None
        if await db.run(artifacts.has_other, job.id, seq, read.text):
            raise Conflict("another input of the distribution is the same")
        return read.values

    def _read(self, dataset: Dataset, given: Sequence[Any], form: Form) -> list[Input]:
        if not given:
            raise InvalidInputs([(("inputs",), "there is no input")])
        if len(given) > self._max_inputs:
            raise InvalidInputs([(("inputs",), f"{len(given)} inputs are more than the {self._max_inputs} allowed")])
        found: list[Input] = []
        faults = Faults()
        seen, called = dict[str, int](), dict[str, int]()
        for place, one in enumerate(given):
            try:
                read = Input.read(dataset.fields, one)
            except InvalidInputs as error:
                faults += [(("inputs", place, *where), reason) for where, reason in error.faults]
            else:
                first = seen.setdefault(read.text, place)
                # Names are unique but for an accident of a hash; that must not cost anybody a file.
                namesake = called.setdefault(file_name(read, form.ending).lower(), place)
                if first != place:
                    faults.append((("inputs", place), f"the same as input {first + 1}"))
                elif namesake != place:
                    faults.append((("inputs", place), f"its file would have the name of that of input {namesake + 1}"))
                found.append(read)
            if len(faults) >= FAULTS_MAX:
                break
        if faults:
            raise InvalidInputs(faults[:FAULTS_MAX])
        return found


def _print(inputs: Sequence[Any]) -> bytes:
    """Of inputs as they were said; in which order an object has its fields says nothing."""
    digest = hashlib.sha256()
    for one in inputs:
        text = json.dumps(one, sort_keys=True).encode()
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.digest()


def request_of(job: Job) -> DistributionRequest:
    return DistributionRequest.of(job.params)


async def content(db: Database, job_id: UUID, *, limit: int, after: object = None) -> Page[dict[str, Any]]:
    """A page of a distribution's inputs, in their order: each with its fields and what has become of it."""
    page = await inspect.list_items(db, job_id, limit=limit, after=after)
    inputs = await db.run(results.shown_inputs, job_id, [item["seq"] for item in page.items])
    return Page([_told(job_id, item, inputs.get(item["seq"])) for item in page.items], page.after)


async def file_facts(db: Database, blobs: Blobs, job: Job, seq: int) -> FileFacts:
    """Of the file of one input; Conflict says why there is none."""
    item = await inspect.get_item(db, job.id, seq)
    made = item["result"]
    if item["status"] != ItemStatus.DONE:
        raise Conflict(f"input {seq + 1} of {job.key} is {item['status']}: it has no file")
    name = await asyncio.to_thread(blobs.name_of, made["path"])
    if name is None:
        raise Conflict(f"the file of input {seq + 1} of {job.key} is in another store: {made['path']}")
    request = request_of(job)
    form = Form(request.format, (), request.compression)
    return FileFacts(name, made["name"], made["size"], made["sha256"], form.content_type)


def file_gone(job: Job, seq: int) -> Conflict:
    return Conflict(f"the file of input {seq + 1} of {job.key} is gone; ask for it again")


def _told(job_id: UUID, item: Mapping[str, Any], given: Any) -> dict[str, Any]:
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
        "error": None if is_done or not error else {"code": error.get("code"), "reason": error.get("reason")},
    }


def _form(dataset: Dataset, wanted: Wanted) -> Form:
    try:
        return dataset.form(wanted.format, wanted.compression)
    except InvalidInput as error:
        raise InvalidInputs([(("compression",), str(error))]) from None
