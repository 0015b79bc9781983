"""The section ``[watches]`` of ``tidemill.toml``."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StrictBool,
    ValidationInfo,
    create_model,
    field_validator,
)

from tidemill.config_sections import ConfigTable, Names, Text, Unique, parse_section
from tidemill.core.errors import InvalidInput
from tidemill.core.json_input import JsonObject
from tidemill.core.kinds import BUILTIN_KIND_PREFIX, SERVICE_KINDS
from tidemill.core.policies import FailurePolicy
from tidemill.files.blobs.blob_store import Blob
from tidemill.jobs.submission import prepare_submission, submit_stored_file
from tidemill.runtime import FileTask, FileTaskView, Runtime
from tidemill.store.job_submission import Submission
from tidemill.store.users import User
from tidemill.watches.file_names import FilePattern
from tidemill.watches.watch import (
    DEFAULT_FAILED_FOLDER,
    DEFAULT_PROCESSED_FOLDER,
    SourceAccess,
    SourceAddress,
    Watch,
    get_source_kind,
    parse_duration_s,
    parse_source_address,
)


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

    async def read_columns(self, blob: Blob, name: str) -> None:
        """Jobs accept files with any columns."""

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


JOB_TASK_KEY = "job"
SCAN_INTERVAL_MIN_S = 1.0
RESERVED_ENV_PREFIX = "TIDEMILL_"
_VARIABLE_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOLDER_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_SFTP_WITHOUT_USER_PATTERN = re.compile(r"sftp://(?:@|[^@/]*(?:/|$))", re.IGNORECASE)
_ACCESS_KEYS_BY_SOURCE_KIND: dict[str, tuple[str, ...]] = {
    "ftp": ("password_env",),
    "ftps": ("password_env", "ca_file"),
    "ftpes": ("password_env", "ca_file"),
    "sftp": ("password_env", "key_env", "key_file", "passphrase_env", "known_hosts"),
    "http": ("authorization_env",),
    "s3": ("access_key_env", "secret_key_env", "endpoint", "region"),
}
_ACCESS_KEYS = sorted(set().union(*_ACCESS_KEYS_BY_SOURCE_KIND.values()))


def _check_variable_name(name: str) -> str:
    if not _VARIABLE_NAME_PATTERN.fullmatch(name):
        raise ValueError("Input should be the name of an environment variable, not its value")
    if name.upper().startswith(RESERVED_ENV_PREFIX):
        raise ValueError(f"Names that begin with {RESERVED_ENV_PREFIX} are reserved for settings. Use another name")
    return name


def _parse_source(value: Any, info: ValidationInfo) -> SourceAddress:
    try:
        return parse_source_address(value, is_index=info.data.get("index", False))
    except InvalidInput as error:
        raise ValueError(str(error)) from None


def _parse_interval(value: Any) -> float | None:
    if value == "manual":
        return None
    seconds = _parse_duration(value)
    if seconds < SCAN_INTERVAL_MIN_S:
        raise ValueError(f'Input should be at least {SCAN_INTERVAL_MIN_S:g}s, or "manual"')
    return seconds


def _parse_duration(value: Any) -> float:
    return parse_duration_s(value if isinstance(value, str) else "")


def _check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if any(one.startswith("/") or "//" in one or ".." in one.split("/") for one in patterns):
        raise ValueError("Patterns are relative to the source, such as *.csv or **/*.csv")
    try:
        FilePattern(patterns)
    except re.error:
        raise ValueError("Invalid pattern; use a glob such as *.csv") from None
    return patterns


def _check_marker_suffix(text: str) -> str:
    if "/" in text or not text.isprintable():
        raise ValueError("Input should be a suffix, such as .done")
    return text


def _check_folder_name(name: str) -> str:
    if not _FOLDER_NAME_PATTERN.fullmatch(name):
        raise ValueError("Input should be a folder name, not a path")
    return name


def _check_policy(policy: JsonObject) -> JsonObject:
    try:
        FailurePolicy.from_json(policy)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return policy


VariableName = Annotated[Text, AfterValidator(_check_variable_name)]
FolderName = Annotated[Text, AfterValidator(_check_folder_name)]


def _format_task_choice(keys: Sequence[str]) -> str:
    match [f'"{key}"' for key in keys]:
        case [key]:
            return f"Set {key}"
        case [first, second]:
            return f"Set either {first} or {second}"
        case quoted:
            return f"Set exactly one of {', '.join(quoted)}"


class WatchTable(ConfigTable):
    """One table of the section. ``make_watch_table_model`` adds the keys of the file tasks."""

    task_keys: ClassVar[tuple[str, ...]] = ()

    index: StrictBool = False
    source: Annotated[SourceAddress, PlainValidator(_parse_source)]
    pattern: Annotated[
        Names,
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
        AfterValidator(_check_patterns),
    ] = ()
    owner: Text = "local"
    every: Annotated[float | None, PlainValidator(_parse_interval)] = None
    marker: Annotated[Text, AfterValidator(_check_marker_suffix)] | None = None
    stable_for: Annotated[float, PlainValidator(_parse_duration)] = 5.0
    moves: StrictBool = True
    processed: FolderName = DEFAULT_PROCESSED_FOLDER
    failed: FolderName = DEFAULT_FAILED_FOLDER
    layout: JsonObject = Field({})
    policy: Annotated[JsonObject, AfterValidator(_check_policy)] = Field({})
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    allowed_drift: Annotated[tuple[Literal["new", "missing"], ...], Unique] = ()
    password_env: VariableName | None = None
    key_env: VariableName | None = None
    key_file: Text | None = None
    passphrase_env: VariableName | None = None
    known_hosts: Text | None = None
    ca_file: Text | None = None
    authorization_env: VariableName | None = None
    access_key_env: VariableName | None = None
    secret_key_env: VariableName | None = None
    endpoint: Text | None = None
    region: Text | None = None

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if sum(given.get(key) is not None for key in cls.task_keys) != 1:
            yield "", _format_task_choice(cls.task_keys)
        if _SFTP_WITHOUT_USER_PATTERN.match(str(given.get("source"))):
            yield "source", "User is missing; write sftp://user@host/folder"
        if "marker" in given and "stable_for" in given:
            yield "stable_for", 'Conflicts with "marker", which decides when a file is complete'
        if given.get("processed", DEFAULT_PROCESSED_FOLDER) == given.get("failed", DEFAULT_FAILED_FOLDER):
            yield "failed", 'Input should differ from "processed"'
        if ("access_key_env" in given) != ("secret_key_env" in given):
            yield "access_key_env", "Set both access_key_env and secret_key_env"

    @field_validator(*_ACCESS_KEYS, mode="before")
    @classmethod
    def _check_access_option(cls, value: Any, info: ValidationInfo) -> Any:
        if "source" in info.data:
            kind = get_source_kind(info.data["source"])
            if info.field_name not in _ACCESS_KEYS_BY_SOURCE_KIND.get(kind, ()):
                raise ValueError(f"Not supported for {kind} sources")
        return value

    def build_watch(self, name: str) -> Watch:
        task_fields = {_make_task_field_name(key): key for key in self.task_keys}
        given = self.get_explicit_values(exclude=("index", *task_fields))
        access = SourceAccess(**{key: given.pop(key) for key in _ACCESS_KEYS if key in given})
        if self.pattern:
            given["pattern"] = FilePattern(self.pattern)
        (task,) = [value for field, value in self if field in task_fields and value is not None]
        return Watch(name=name, task=task, access=access, **given)


def _make_task_field_name(key: str) -> str:
    """Return the field name for a task. Keys such as ``import`` are not valid field names."""
    return f"{key}_task"


def make_watch_table_model(file_tasks: Mapping[str, type[FileTask]]) -> type[WatchTable]:
    """Return the model of a watch table with one key per file task."""
    fields: dict[str, Any] = {
        _make_task_field_name(key): (task | None, Field(None, alias=key)) for key, task in file_tasks.items()
    }
    table = create_model("WatchTable", __base__=WatchTable, **fields)
    table.task_keys = tuple(file_tasks)
    return table


def parse_watches(document: Mapping[str, Any], file_tasks: Mapping[str, type[FileTask]]) -> dict[str, Watch]:
    """Return the watches in a document by name. Raise InvalidSettings with all problems.

    ``file_tasks`` are the tasks of the enabled features. The task ``job`` always exists.
    """
    table = make_watch_table_model({JOB_TASK_KEY: JobFileTask, **file_tasks})
    return parse_section(document, "watches", table, lambda name, table: table.build_watch(name))
