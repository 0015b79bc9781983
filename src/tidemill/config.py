"""Settings, read once from the environment when a process starts. Most are bounds that the engine adapts within."""

import json
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Self

import platformdirs
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tidemill.core.allowed_hosts import AllowedHost
from tidemill.core.blob_location import BucketLocation, parse_blob_location
from tidemill.core.connection_urls import check_broker_url, check_database_url
from tidemill.core.errors import InvalidInput, InvalidSettings
from tidemill.core.principal import Role, has_role
from tidemill.core.quotas import Quota
from tidemill.failpoints import arm_failpoints, parse_failpoints

ENV_PREFIX = "TIDEMILL_"
Positive = Annotated[int, Field(gt=0)]
SessionSeconds = Annotated[int, Field(gt=0, le=30 * 86_400)]
NonNegative = Annotated[int, Field(ge=0)]


def _parse_list_or_json(value: object) -> object:
    """Parse a comma-separated list or JSON; return other values unchanged."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text[:1] not in ("[", "{"):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"invalid JSON: {error}") from None


def _check_allowed_host(text: str) -> str:
    AllowedHost.parse(text)
    return text


def _path_to_text(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _check_blob_location(text: str) -> str:
    try:
        parse_blob_location(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return text


def _empty_to_none(value: object) -> object:
    return None if value == "" else value


def _check_log_level(text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise ValueError(f'must be debug, info, warning or error, not "{text}"')
    return text


def _check_failpoints(text: str) -> str:
    parse_failpoints(text)
    return text


def _expand_path_to_folder_table(value: object) -> object:
    return {"path": value} if isinstance(value, str | Path) else value


def _parse_source_path(value: object) -> Path | BucketLocation:
    if isinstance(value, Path | BucketLocation):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a folder or a bucket URL")  # noqa: TRY004  pydantic reports only this type
    try:
        return parse_blob_location(value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None


class SourceFolder(BaseModel):
    """A folder or a bucket with files for submissions, and the roles that may submit them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[Path | BucketLocation, PlainValidator(_parse_source_path)]
    read: tuple[Role, ...] = (Role.ADMIN,)

    def is_allowed_for(self, role: Role) -> bool:
        return has_role(self.read, role)


def list_allowed_sources(folders: Mapping[str, SourceFolder], role: Role) -> list[str]:
    """Return the names of the source folders that a role may read."""
    return sorted(name for name, folder in folders.items() if folder.is_allowed_for(role))


# Parsed here and not by pydantic-settings, so that invalid JSON is reported with all other problems.
LIST_OR_JSON = (NoDecode, BeforeValidator(_parse_list_or_json))


class Settings(BaseSettings):
    """All settings with their defaults. Each environment variable is ``TIDEMILL_`` plus the name in upper case."""

    # Neither error messages nor repr() show passwords.
    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, frozen=True, extra="ignore", populate_by_name=True, hide_input_in_errors=True
    )

    database_url: Annotated[str, AfterValidator(check_database_url)] | None = Field(
        default=None,
        validation_alias=AliasChoices("TIDEMILL_DATABASE_URL", "DATABASE_URL"),
        repr=False,
        description="URL of a PostgreSQL 15-18 server; default: an embedded server under TIDEMILL_HOME",
    )
    home: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("tidemill")),
        description="Directory for the embedded database and for stored files",
    )
    blobs: Annotated[str, BeforeValidator(_path_to_text), AfterValidator(_check_blob_location)] = Field(
        default_factory=lambda data: str(data.get("home", Path()) / "blobs"),
        validation_alias=AliasChoices("TIDEMILL_BLOBS", "TIDEMILL_EXPORT_FILE_PATH"),
        description="Storage for files: a folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
    )
    presigned_s: Annotated[int, Field(ge=0, le=7 * 86_400)] = Field(
        default=0,
        description="Redirect downloads to object store links that are valid for this many seconds; 0: no redirect",
    )
    config: Path | None = Field(
        default=None,
        description="Configuration file; default: tidemill.toml in the working directory, if it exists",
    )
    app: Annotated[str | None, BeforeValidator(_empty_to_none)] = Field(
        default=None,
        description="MODULE:NAME of the mill for commands without --app; default: `app` in the configuration file",
    )
    db_max_conns: Positive = Field(
        default=8,
        description="Maximum database connections per process. A child process can always open its lanes plus two",
    )
    db_max_idle_conns: Positive = Field(default=1, description="Idle database connections to keep open")
    db_conn_max_lifetime: Positive = Field(default=3_600, description="Seconds after which a connection is replaced")
    db_prepare: bool = Field(
        default=True, description="Whether to use prepared statements. Behind a connection pooler, they are never used"
    )
    db_timeout_ms: Positive = Field(
        default=20_000, description="Timeout for each statement in a flush or an ingest chunk"
    )
    db_p50_ms: Positive = Field(default=50, description="Ingest chunks grow while their average duration is below this")
    db_p95_ms: Positive = Field(default=500, description="Ingest chunks shrink when one takes longer than this")

    ingest_min_rows: Positive = Field(default=64, description="Minimum rows per ingest chunk")
    ingest_max_rows: Positive = Field(default=10_000, description="Maximum rows per ingest chunk")
    ingest_max_batch_bytes: Positive = Field(default=4 * 1024 * 1024, description="Maximum bytes per ingest chunk")
    max_row_bytes: Positive = Field(
        default=4 * 1024 * 1024, description="Maximum size of one input; a larger row in a file is invalid"
    )
    max_unpacked_mb: Positive = Field(
        default=10_240, description="Maximum size of a compressed file after decompression"
    )

    file_cpu_s: Annotated[int, Field(gt=0, le=3_600)] = Field(
        default=60, description="Maximum CPU seconds to detect or preview a file, or to read one block of it"
    )
    file_memory_mb: Annotated[int, Field(ge=128)] = Field(
        default=1_024, description="Memory limit of the processes that read files"
    )
    file_readers: Annotated[int, Field(gt=0, le=64)] = Field(
        default=4, description="Maximum files that one API process detects or previews concurrently"
    )
    file_readers_per_user: Positive = Field(
        default=2, description="Maximum files of one user that one API process detects or previews concurrently"
    )
    fetches: Annotated[int, Field(gt=0, le=64)] = Field(
        default=4, description="Maximum files that one process downloads from URLs concurrently"
    )
    fetches_per_user: Positive = Field(
        default=2, description="Maximum files of one user that are downloaded from URLs concurrently"
    )

    worker_pool_size: Positive = Field(default=1, description="Child processes per worker (--processes)")
    worker_lanes: Positive = Field(default=2, description="Batches that a child process runs concurrently")
    worker_target_slice_ms: Positive = Field(default=5_000, description="Target duration of a claimed batch")
    claim_min: Positive = Field(
        default=1, description="Minimum items per claim; a claim is smaller only if fewer are due"
    )
    claim_max: Annotated[int, Field(gt=0, le=100_000)] = Field(default=1_000, description="Maximum items per claim")
    safety_factor: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.7, description="Fraction of the target duration that a claim should take"
    )
    lock_floor_ms: Positive = Field(default=30_000, description="Minimum lease duration")
    lock_cap_ms: Positive = Field(default=600_000, description="Maximum lease duration")
    max_attempts_error: Positive = Field(default=3, description="Maximum attempts for an item whose handler fails")
    max_attempts_not_found: Positive = Field(default=2, description="Maximum attempts for an item that is not found")
    max_concurrent_jobs: Positive = Field(default=5, description="Maximum concurrently running jobs per owner")
    batch_size: Positive = Field(default=100, description="Minimum outcomes per flush while a batch is running")
    flush_interval_ms: Positive = Field(default=5_000, description="Maximum time that an outcome waits for a flush")
    flush_buffer: Positive = Field(
        default=500,
        description="Maximum buffered outcomes, at least the size of two flushes. "
        "While the buffer is full, no handler starts",
    )
    broker: Annotated[Annotated[str, AfterValidator(check_broker_url)] | None, BeforeValidator(_empty_to_none)] = Field(
        default=None,
        repr=False,
        description="Broker for hints, redis://… or amqp://… (extra `brokers`); default: the database",
    )
    resend_after_s: Positive = Field(
        default=60, description="Seconds after which a due job that no worker has checked gets another hint"
    )
    poll_ms: Positive = Field(default=1_000, description="How often an idle worker polls when no hint arrives")
    finalizer_interval_ms: Annotated[int, Field(ge=50, le=5_000)] = Field(
        default=1_000, description="How often workers reclaim expired leases and close jobs that have no open items"
    )
    stop_grace_ms: NonNegative = Field(default=20_000, description="How long a stopping worker waits for running items")
    child_memory_mb: Positive = Field(default=2_048, description="Memory limit of a child process")
    cpu_high_percent: Positive = Field(
        default=300, description="CPU load per core, in percent, above which claims shrink; at 100, every core is busy"
    )
    memory_high_percent: Annotated[int, Field(gt=0, le=100)] = Field(
        default=85,
        description="Memory use in percent, of the machine or of a child process's limit, above which claims shrink",
    )

    http_host: str = Field(default="127.0.0.1", description="Address that `tidemill serve` listens on")
    http_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8484, description="Port that `tidemill serve` listens on; 0 selects a free port"
    )
    http_max_connections: Positive = Field(
        default=4_096, description="Maximum open connections; the process also keeps 256 file descriptors free"
    )
    http_max_connections_per_address: Positive = Field(
        default=1_024, description="Maximum open connections of one client address; trusted proxies have no limit"
    )
    http_head_timeout_s: Annotated[float, Field(gt=0, le=600)] = Field(
        default=10.0, description="Timeout for receiving the request line and the headers of a request"
    )
    max_file_size_mb: Positive = Field(default=500, description="Maximum size of an uploaded file")
    max_json_bytes: Positive = Field(default=16 * 1024 * 1024, description="Maximum size of a JSON request body")
    max_inline_inputs: Positive = Field(
        default=100_000, description="Maximum inputs in a JSON body; send more as a file"
    )
    rate_limit_per_s: Positive = Field(
        default=100, description="Maximum requests per second for one API key, on average"
    )
    rate_limit_burst: Positive = Field(default=200, description="Maximum burst of requests for one API key")
    quota_open_jobs: NonNegative = Field(
        default=1_000, description="Maximum open jobs of a user who is not an admin; 0: no limit"
    )
    quota_open_rows: NonNegative = Field(
        default=10_000_000, description="Maximum rows of a user's jobs that are not processed yet; 0: no limit"
    )
    quota_stored_mb: NonNegative = Field(
        default=10_240, description="Maximum size of all files that a user's jobs store; 0: no limit"
    )
    session_idle_s: SessionSeconds = Field(
        default=3_600, description="Seconds of inactivity after which a browser session ends"
    )
    session_max_s: SessionSeconds = Field(default=43_200, description="Maximum duration of a browser session")
    cors_origins: Annotated[list[str], *LIST_OR_JSON] = Field(
        default=[], description="Origins that may call the API from a browser"
    )
    trusted_proxies: Annotated[list[IPvAnyNetwork], *LIST_OR_JSON] = Field(
        default=[],
        description="Proxies, as addresses or networks, whose X-Forwarded-For and X-Forwarded-Proto are trusted",
    )
    disabled_features: Annotated[list[str], *LIST_OR_JSON] = Field(
        default=[], description="Features to disable: imports, exports, distributions, enrichment, watches"
    )
    sources: Annotated[
        dict[str, Annotated[SourceFolder, BeforeValidator(_expand_path_to_folder_table)]], *LIST_OR_JSON
    ] = Field(
        default={},
        description="Folders and buckets whose files submissions may use, and folders that watches may scan, as a JSON "
        "object: name -> path or bucket URL, or path and roles",
    )
    kind_roles: Annotated[list[Role], *LIST_OR_JSON] = Field(
        default=["user", "admin"],
        validate_default=True,
        description="Roles that may submit jobs of kinds that declare no roles",
    )
    scan_watches: bool = Field(default=True, description="Whether workers scan watches")
    scan_max_files: Annotated[int, Field(gt=0, le=10_000)] = Field(
        default=100, description="Maximum files per scan of a watch; the next scan continues with the rest"
    )
    known_hosts: Path | None = Field(
        default=None, description="File with the host keys of SFTP servers; default: ~/.ssh/known_hosts"
    )
    remote_url_timeout: Positive = Field(
        default=300, description="Timeout for downloading a file from a URL, in seconds"
    )
    remote_allow: Annotated[list[Annotated[str, AfterValidator(_check_allowed_host)]], *LIST_OR_JSON] = Field(
        default=[],
        description="Private hosts and networks, with or without a port, that files may be downloaded from",
    )
    import_statement_timeout_s: Annotated[int, Field(gt=0, le=86_400)] = Field(
        default=60, description="Timeout for each statement of an import on its table, in seconds"
    )
    import_batch_rows: Annotated[int, Field(gt=0, le=100_000)] = Field(
        default=10_000, description="Maximum rows that an import writes in one transaction"
    )
    export_ttl_hours: Annotated[int, Field(gt=0, le=100 * 366 * 24)] = Field(
        default=168, description="Hours for which an export's file is kept"
    )
    export_streams: Positive = Field(default=8, description="Maximum exports that one API process streams concurrently")
    export_streams_per_user: Positive = Field(
        default=4, description="Maximum exports that one API process streams concurrently to one user"
    )
    reuse_enabled: bool = Field(
        default=True, description="Whether distributions reuse files that earlier distributions produced"
    )
    reuse_days: Annotated[int, Field(ge=0, le=36_500)] = Field(
        default=7, description="Regenerate an input's file if the input's date is less than this many days ago"
    )
    distribution_max_attempts: Annotated[int, Field(gt=0, le=1_000)] = Field(
        default=5, description="Maximum attempts for each input of a distribution"
    )
    distribution_backoff_ms: NonNegative = Field(
        default=1_000,
        description="Delay before the second attempt; each further attempt doubles it, and jitter is added",
    )
    distribution_timeout_s: Positive = Field(default=300, description="Timeout for producing one file")
    max_distribution_inputs: Positive = Field(default=100_000, description="Maximum inputs per distribution")
    pending_dashboard: bool = Field(
        default=True,
        description="Whether /v1/pending can list items of all jobs; if false, each request must name a job",
    )

    tracebacks: bool = Field(
        default=True, description="Whether to store and log the tracebacks of exceptions that handlers raise"
    )
    slow_query_ms: Positive = Field(
        default=500, description="Transactions that take longer than this emit the event `query.slow`"
    )
    enable_metrics: bool = Field(default=True, description="Whether to collect Prometheus metrics")
    metrics_path: str = Field(default="/metrics", pattern=r"^/[\w./~-]*$", description="Path of the metrics endpoint")
    metrics_host: str = Field(default="127.0.0.1", min_length=1, description="Address of a worker's metrics endpoint")
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None,
        description="First port to try for a worker's metrics endpoint; 0 selects any free port; default: no endpoint",
    )
    log_level: Annotated[str, AfterValidator(_check_log_level)] = Field(
        default="info", description="debug, info, warning or error"
    )
    failpoints: Annotated[str, AfterValidator(_check_failpoints)] | None = Field(
        default=None, description="For tests only: points in the code at which a process ends, stops or is disturbed"
    )

    @model_validator(mode="after")
    def _check_related_settings(self) -> Self:
        pairs = [
            ("claim_min", "claim_max"),
            ("lock_floor_ms", "lock_cap_ms"),
            ("ingest_min_rows", "ingest_max_rows"),
            ("db_p50_ms", "db_p95_ms"),
            ("db_max_idle_conns", "db_max_conns"),
            ("batch_size", "flush_buffer"),
            ("max_row_bytes", "ingest_max_batch_bytes"),
            ("rate_limit_per_s", "rate_limit_burst"),
            ("session_idle_s", "session_max_s"),
            ("file_readers_per_user", "file_readers"),
            ("fetches_per_user", "fetches"),
        ]
        problems = [f"{low} must not exceed {high}" for low, high in pairs if getattr(self, low) > getattr(self, high)]
        if self.db_timeout_ms >= self.lock_floor_ms:
            problems.append("db_timeout_ms must be below lock_floor_ms: a flush must end before its lease expires")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def default_quota(self) -> Quota:
        """The limits of users who are not admins and have no other limits."""
        return Quota(
            open_jobs=self.quota_open_jobs or None,
            open_rows=self.quota_open_rows or None,
            stored_bytes=(self.quota_stored_mb << 20) or None,
        )


def load_settings(**overrides: object) -> Settings:
    """Return the settings of this process, and arm its failpoints; raise InvalidSettings with all problems."""
    problems = _list_unknown_variable_problems()
    values = {name: value for name, value in overrides.items() if value is not None}
    while True:
        try:
            settings = Settings(**values)  # type: ignore[arg-type]
            break
        except ValidationError as error:
            # A default that depends on an invalid setting is no problem of its own.
            details = [detail for detail in error.errors() if detail["type"] != "default_factory_not_called"]
            invalid = [detail["loc"] for detail in details]
            problems += [_format_problem(detail["loc"], detail["msg"]) for detail in details]
            if () in invalid:
                break
            # Replace invalid values with defaults and validate again: pairs are compared only if each value is valid.
            values |= dict(_get_field_default(location) for location in invalid)
    if len(problems) == 1:
        raise InvalidSettings(f"Invalid settings: {problems[0]}")
    if problems:
        raise InvalidSettings("Invalid settings:\n" + "\n".join(f"  - {line}" for line in problems))
    arm_failpoints(settings.failpoints or "", settings.home)
    return settings


def list_variable_names() -> set[str]:
    """Return the environment variables of all settings; some settings have two."""
    aliases = [getattr(field.validation_alias, "choices", ()) for field in Settings.model_fields.values()]
    return {ENV_PREFIX + name.upper() for name in Settings.model_fields}.union(*aliases)


def _get_field_default(location: tuple[int | str, ...]) -> tuple[str, object]:
    name = str(location[0]).lower().removeprefix(ENV_PREFIX.lower())
    return name, Settings.model_fields[name].get_default(call_default_factory=True, validated_data={})


def _list_unknown_variable_problems() -> list[str]:
    known = list_variable_names()
    return [
        f"{name}: unknown setting{_suggest_setting(name)}"
        for name in sorted(os.environ)
        if name.startswith(ENV_PREFIX) and not name.startswith(SERVICE_SECRET_ENV_PREFIX) and name not in known
    ]


def _suggest_setting(variable: str) -> str:
    near = get_close_matches(variable.removeprefix(ENV_PREFIX).lower(), Settings.model_fields, n=1)
    return f'; did you mean "{ENV_PREFIX}{near[0].upper()}"?' if near else ""


def get_database_variable_name() -> str:
    """Return the name of the variable that sets the database, for messages."""
    name = "DATABASE_URL"
    return ENV_PREFIX + name if ENV_PREFIX + name in os.environ else name


def _format_problem(location: tuple[int | str, ...], message: str) -> str:
    name = ".".join(str(part) for part in location).upper().removeprefix(ENV_PREFIX)
    text = message.removeprefix("Value error, ")
    variable = ENV_PREFIX + name
    if name == "DATABASE_URL" and name in os.environ:
        variable = get_database_variable_name()
    return f"{variable}: {text}" if name else text


SERVICE_SECRET_ENV_PREFIX = "TIDEMILL_SECRET_"  # noqa: S105  a prefix of names, not a secret
