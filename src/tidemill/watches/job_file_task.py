"""The task ``job`` of a watch: each file becomes a job of one kind."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, Field

from tidemill.config_sections import ConfigTable, Text
from tidemill.core.errors import InvalidInput
from tidemill.core.kinds import BUILTIN_KIND_PREFIX, SERVICE_KINDS
from tidemill.files.blobs.blob_store import Blob
from tidemill.jobs.submission import prepare_submission, submit_stored_file
from tidemill.runtime import FileTaskView, Runtime
from tidemill.store.job_submission import Submission
from tidemill.store.users import User


def _check_kind(kind: str) -> str:
    if kind.startswith(BUILTIN_KIND_PREFIX) and kind not in SERVICE_KINDS:
        raise ValueError('This kind is reserved. To import files, use "import" instead of "job"')
    return kind


class JobFileTask(ConfigTable):
    """The table ``job`` of a watch in ``tidemill.toml``."""

    kind: Annotated[Text, AfterValidator(_check_kind)]
    params: dict[str, Any] = Field({})

    def describe(self) -> str:
        return f"job {self.kind}"

    def get_view(self) -> FileTaskView:
        return FileTaskView(kind=self.kind)

    async def prepare(
        self, runtime: Runtime, owner: User, spec: Submission, layout: Mapping[str, object]
    ) -> "PreparedFileJob":
        spec = replace(spec, kind=self.kind, params=dict(self.params))
        return PreparedFileJob(runtime, await prepare_submission(runtime, spec, owner.role), layout)


@dataclass(frozen=True, slots=True)
class PreparedFileJob:
    runtime: Runtime
    spec: Submission
    layout_options: Mapping[str, object]

    async def submit(
        self,
        blob: Blob,
        name: str,
        idempotency_key: str,
        source: Mapping[str, str],  # noqa: ARG002  jobs do not store the source
    ) -> UUID:
        if not blob.size:
            raise InvalidInput("The file is empty")
        detect = self.runtime.file_reader.detect_layout
        layout = await asyncio.to_thread(detect, blob.id, name=name, options=self.layout_options)
        spec = replace(self.spec, idem_key=idempotency_key, idem_print=blob.sha256)
        job, _ = await submit_stored_file(self.runtime, spec, blob, name, layout)
        return job.id
