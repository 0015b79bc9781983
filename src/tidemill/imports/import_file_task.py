"""The task ``import`` of a watch, which imports each file into a resource."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pydantic import Field, StrictBool

from tidemill.config_sections import ConfigTable, Names, Text
from tidemill.core.errors import Forbidden, UnknownResource
from tidemill.core.kinds import IMPORT_KIND
from tidemill.files.blobs.blob_store import Blob
from tidemill.imports.import_plan import DuplicateRule, ImportRequest, ImportWriteMode, parse_lookups
from tidemill.imports.import_submission import ImportFile, ImportOptions, ImportSubmission
from tidemill.imports.use_cases import ImportUseCases, make_import_use_cases
from tidemill.runtime import FileTaskView, Runtime
from tidemill.store.job_submission import Submission
from tidemill.store.users import User
from tidemill.tables.config import ComputedRules, Scalar, SkipRules, ValueFormatName


class ImportFileTask(ConfigTable):
    """The table ``import`` of a watch in ``tidemill.toml``."""

    resource: Text
    mode: ImportWriteMode = "insert"
    duplicates: DuplicateRule = "error"
    mapping: dict[str, str] = Field({})
    translations: dict[str, dict[str, str]] = Field({})
    key: Names = ()
    validate_only: StrictBool = False
    spreadsheet_safe: StrictBool = False
    keep_empty: StrictBool = False
    formats: dict[str, ValueFormatName] = Field({})
    assume: StrictBool = False
    constants: dict[str, Scalar] = Field({})
    computed: ComputedRules = Field({})
    skip: SkipRules = ()
    undo: StrictBool | None = None
    lookups: dict[str, str | Names] = Field({})
    create_missing: Names = ()

    def describe(self) -> str:
        return f"import into {self.resource}"

    def _make_request(self) -> ImportRequest:
        options = self.get_explicit_values(exclude=("resource", "lookups", "create_missing"))
        return ImportRequest(**options, lookups=parse_lookups(self.lookups), create_missing=list(self.create_missing))

    def get_view(self) -> FileTaskView:
        return FileTaskView(kind=IMPORT_KIND, resource_type=self.resource, mode=self.mode)

    async def prepare(
        self, runtime: Runtime, owner: User, spec: Submission, layout: Mapping[str, object]
    ) -> "PreparedFileImport":
        imports = runtime.get(make_import_use_cases)
        options = ImportOptions(
            resource=self.resource,
            request=self._make_request(),
            layout=layout,
            policy=spec.policy,
            priority=spec.priority,
        )
        try:
            submission = await imports.check_and_prepare_submission(
                options, role=owner.role, spec=spec, is_application=True
            )
        except (Forbidden, UnknownResource):
            raise UnknownResource(
                f'Resource "{self.resource}" does not exist, or user "{owner.name}" has no write access to it'
            ) from None
        return PreparedFileImport(imports, submission)


@dataclass(frozen=True, slots=True)
class PreparedFileImport:
    imports: ImportUseCases
    submission: ImportSubmission

    async def read_columns(self, blob: Blob, name: str) -> Sequence[str] | None:
        return await self.imports.read_columns(self.submission, ImportFile(blob, name))

    async def submit(self, blob: Blob, name: str, idempotency_key: str, source: Mapping[str, str]) -> UUID:
        submission = self.submission.copy_for_source(source, idempotency_key)
        return (await self.imports.submit_file(submission, ImportFile(blob, name))).job_id
