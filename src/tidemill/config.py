"""Settings: bounds, not fixed constants. Read once, at an entrance, from the environment."""

import json
import os
from pathlib import Path
from typing import Annotated, Self

import platformdirs
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    IPvAnyNetwork,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tidemill.core.allowed_hosts import AllowedHost
from tidemill.core.blob_location import parse_blob_location
from tidemill.core.errors import InvalidInput, InvalidSettings

ENV_PREFIX = "TIDEMILL_"
BROKER_URL_PREFIXES = ("redis://", "rediss://", "amqp://", "amqps://")
Positive = Annotated[int, Field(gt=0)]
SessionSeconds = Annotated[int, Field(gt=0, le=30 * 86_400)]
Milliseconds = Annotated[int, Field(ge=0)]


def _parse_list_or_json(value: object) -> object:
    """A list: words between commas, or JSON; anything larger is JSON."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text[:1] not in ("[", "{"):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None


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


def _check_broker_url(text: str) -> str:
    if not text.startswith(BROKER_URL_PREFIXES):
        raise ValueError(f"a broker's address begins with one of {', '.join(BROKER_URL_PREFIXES)}")
    return text


LIST_OR_JSON = (NoDecode, BeforeValidator(_parse_list_or_json))  # by us, so that a mistake is told like every other


class Settings(BaseSettings):
    """Every setting, its default, and what it does. The name in the environment is TIDEMILL_ + the upper case."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore", populate_by_name=True)

    database_url: str | None = Field(
        default=None,
        validation_alias=AliasChoices("TIDEMILL_DATABASE_URL", "DATABASE_URL"),
        description="Any PostgreSQL 15-18; without it, an embedded one under TIDEMILL_HOME",
    )
    home: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("tidemill")),
        description="Where the embedded database and files live",
    )
    blobs: Annotated[str, BeforeValidator(_path_to_text), AfterValidator(_check_blob_location)] = Field(
        default_factory=lambda data: str(data.get("home", Path()) / "blobs"),
        validation_alias=AliasChoices("TIDEMILL_BLOBS", "TIDEMILL_EXPORT_FILE_PATH"),
        description="Where stored files are: a folder, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix",
    )
    presigned_s: Annotated[int, Field(ge=0, le=7 * 86_400)] = Field(
        default=0,
        description="Downloads are redirected to the object store, by a link that is good for so long; 0: not",
    )
    config: Path | None = Field(
        default=None,
        description="The file that declares resources, datasets and watches; without it, tidemill.toml here, if any",
    )
    db_max_conns: Positive = Field(
        default=8, description="Connections a process may open at most, but one per lane and two more"
    )
    db_max_idle_conns: Positive = Field(default=1, description="Of these, how many stay open though nobody needs them")
    db_conn_max_lifetime: Positive = Field(default=3_600, description="Seconds after which a connection is replaced")
    db_prepare: bool = Field(default=True, description="Prepared statements; switch off behind some proxies")
    db_timeout_ms: Positive = Field(
        default=20_000, description="The longest a statement of a flush or a chunk may take"
    )
    db_p50_ms: Positive = Field(default=50, description="Ingest chunks grow while their moving average is below this")
    db_p95_ms: Positive = Field(default=500, description="Ingest chunks shrink when one takes longer than this")

    ingest_min_rows: Positive = Field(default=64, description="The smallest chunk of items that is copied at once")
    ingest_max_rows: Positive = Field(default=10_000, description="The largest")
    ingest_max_batch_bytes: Positive = Field(default=4 * 1024 * 1024, description="The largest, in bytes")
    max_row_bytes: Positive = Field(default=4 * 1024 * 1024, description="An input beyond this is a bad row")
    max_unpacked_mb: Positive = Field(default=10_240, description="What a compressed file may unpack to")

    worker_pool_size: Positive = Field(default=1, description="Child processes of a worker (--processes)")
    worker_lanes: Positive = Field(default=2, description="Batches a child process holds at a time")
    worker_target_slice_ms: Positive = Field(default=5_000, description="How long a claimed batch should take")
    claim_min: Positive = Field(default=1, description="The fewest items a claim takes, if there are so many")
    claim_max: Annotated[int, Field(gt=0, le=100_000)] = Field(default=1_000, description="The most")
    safety_factor: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.7, description="Of the slice, used when sizing claims"
    )
    lock_floor_ms: Positive = Field(default=30_000, description="The shortest lease")
    lock_cap_ms: Positive = Field(default=600_000, description="The longest lease")
    max_attempts_error: Positive = Field(default=3, description="Attempts at an item whose handler fails")
    max_attempts_not_found: Positive = Field(default=2, description="Attempts at an item that is not found")
    max_concurrent_jobs: Positive = Field(default=5, description="Jobs of one owner that turn at the same time")
    batch_size: Positive = Field(default=100, description="Outcomes per flush, at least, while a batch goes on")
    flush_interval_ms: Positive = Field(default=5_000, description="The longest an outcome waits to be flushed")
    flush_buffer: Positive = Field(
        default=500, description="Outcomes that may wait, or twice a flush if that is more; handlers pause beyond it"
    )
    broker: Annotated[Annotated[str, AfterValidator(_check_broker_url)] | None, BeforeValidator(_empty_to_none)] = (
        Field(
            default=None,
            description="redis://… or amqp://…: hints travel through it (extra `brokers`); without it, the database",
        )
    )
    resend_after_s: Positive = Field(
        default=60, description="A job that is due and that nobody has looked at for so long gets another hint"
    )
    poll_ms: Positive = Field(default=1_000, description="How often an idle worker looks, when nothing wakes it")
    finalizer_interval_ms: Annotated[int, Field(ge=50, le=5_000)] = Field(
        default=1_000, description="How often leases that ran out are taken back, and drained jobs closed"
    )
    stop_grace_ms: Milliseconds = Field(default=20_000, description="How long a stopping worker lets items finish")
    child_memory_mb: Positive = Field(default=2_048, description="Memory a child process may use")
    cpu_high_percent: Positive = Field(
        default=300, description="Load per core beyond which claims shrink; 100 is a busy core"
    )
    memory_high_percent: Annotated[int, Field(gt=0, le=100)] = Field(
        default=85, description="Used memory, of the machine or of a child's own, beyond which claims shrink"
    )

    http_host: str = Field(default="127.0.0.1", description="The address `tidemill serve` listens on")
    http_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8484, description="Its port; 0 for any that is free"
    )
    max_file_size_mb: Positive = Field(default=500, description="The largest file that may be uploaded")
    max_json_bytes: Positive = Field(default=16 * 1024 * 1024, description="The largest JSON body of a request")
    max_inline_inputs: Positive = Field(
        default=100_000, description="Inputs in a JSON body, at most; more come as a file"
    )
    rate_limit_per_s: Positive = Field(default=100, description="Requests a second that one key may make, on average")
    rate_limit_burst: Positive = Field(default=200, description="And at once")
    session_idle_s: SessionSeconds = Field(
        default=3_600, description="A browser that does nothing for so long is signed out"
    )
    session_max_s: SessionSeconds = Field(
        default=43_200, description="And one that signed in so long ago, whatever it does"
    )
    cors_origins: Annotated[list[str], *LIST_OR_JSON] = Field(
        default=[], description="Sites whose pages may call the API"
    )
    trusted_proxies: Annotated[list[IPvAnyNetwork], *LIST_OR_JSON] = Field(
        default=[], description="Addresses or networks of proxies whose X-Forwarded-For and -Proto are believed"
    )
    disabled_features: Annotated[list[str], *LIST_OR_JSON] = Field(
        default=[], description="Features to leave out: imports, exports, distributions, enrichment, watches"
    )
    sources: Annotated[dict[str, Path], *LIST_OR_JSON] = Field(
        default={}, description="Folders that submissions may refer to, as JSON: name to path"
    )
    scan_watches: bool = Field(default=True, description="Whether workers look at what watches watch")
    scan_max_files: Annotated[int, Field(gt=0, le=10_000)] = Field(
        default=100, description="Files that one scan of a watch takes at most; the next goes on"
    )
    known_hosts: Path | None = Field(
        default=None, description="The host keys of SFTP servers; without it, ~/.ssh/known_hosts"
    )
    remote_url_timeout: Positive = Field(
        default=300, description="Seconds that fetching a file from a URL may take at most"
    )
    remote_allow: Annotated[list[Annotated[str, AfterValidator(_check_allowed_host)]], *LIST_OR_JSON] = Field(
        default=[],
        description="Hosts and networks, each with a port or not, that files are fetched from though not public",
    )
    export_ttl_hours: Annotated[int, Field(gt=0, le=100 * 366 * 24)] = Field(
        default=168, description="The file of an export is kept for so long"
    )
    export_streams: Positive = Field(default=8, description="Exports that one service streams at the same time")
    reuse_enabled: bool = Field(default=True, description="Whether distributions use files again that were made before")
    reuse_days: Annotated[int, Field(ge=0, le=36_500)] = Field(
        default=7, description="Files of inputs whose date is younger than so many days are made anew"
    )
    distribution_max_attempts: Annotated[int, Field(gt=0, le=1_000)] = Field(
        default=5, description="Attempts at an input of a distribution that fails"
    )
    distribution_backoff_ms: Milliseconds = Field(
        default=1_000, description="Before its second attempt; doubled from there, with jitter"
    )
    distribution_timeout_s: Positive = Field(default=300, description="How long a file may take")
    max_distribution_inputs: Positive = Field(default=100_000, description="Inputs of a distribution, at most")
    pending_dashboard: bool = Field(default=True, description="Whether /v1/pending, across jobs, is there")

    slow_query_ms: Positive = Field(default=500, description="A transaction that takes longer is told of")
    enable_metrics: bool = Field(default=True, description="Whether anything is measured for Prometheus")
    metrics_path: str = Field(default="/metrics", pattern=r"^/[\w./~-]*$", description="Where Prometheus asks")
    metrics_host: str = Field(default="127.0.0.1", min_length=1, description="The address on which a worker answers it")
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None,
        description="A worker answers on this port, or the next free one; 0 for any; without it, not at all",
    )
    log_level: str = Field(
        default="info", pattern="(?i)^(debug|info|warning|error)$", description="debug, info, warning, error"
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
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
        ]
        wrong = [f"{low} must not exceed {high}" for low, high in pairs if getattr(self, low) > getattr(self, high)]
        if self.db_timeout_ms >= self.lock_floor_ms:
            wrong.append("db_timeout_ms must be below lock_floor_ms: a flush must end before its lease does")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self


def load_settings(**overrides: object) -> Settings:
    """The settings of this process; InvalidSettings with every problem at once."""
    problems = _find_unknown_variables()
    values = {name: value for name, value in overrides.items() if value is not None}
    while True:
        try:
            settings = Settings(**values)  # type: ignore[arg-type]
            break
        except ValidationError as error:
            wrong = [detail["loc"] for detail in error.errors()]
            problems += [_format_problem(detail["loc"], detail["msg"]) for detail in error.errors()]
            if () in wrong:
                break
            # What is wrong is set aside, to see what else is: pairs are compared only when each value is good.
            values |= {_get_field_name(location): _get_default(_get_field_name(location)) for location in wrong}
    if problems:
        raise InvalidSettings("cannot start with these settings:\n" + "\n".join(f"  - {line}" for line in problems))
    return settings


def list_variable_names() -> set[str]:
    """What settings are called in the environment; some have two names."""
    aliases = [getattr(field.validation_alias, "choices", ()) for field in Settings.model_fields.values()]
    return {ENV_PREFIX + name.upper() for name in Settings.model_fields}.union(*aliases)


def _get_default(name: str) -> object:
    return Settings.model_fields[name].get_default(call_default_factory=True, validated_data={})


def _get_field_name(location: tuple[int | str, ...]) -> str:
    return str(location[0]).lower().removeprefix(ENV_PREFIX.lower())


def _find_unknown_variables() -> list[str]:
    known = list_variable_names()
    return [
        f"{name}: there is no such setting"
        for name in sorted(os.environ)
        if name.startswith(ENV_PREFIX) and not name.startswith(SERVICE_SECRET_ENV_PREFIX) and name not in known
    ]


def _format_problem(location: tuple[int | str, ...], message: str) -> str:
    name = ".".join(str(part) for part in location).upper().removeprefix(ENV_PREFIX)
    text = message.removeprefix("Value error, ")
    return f"{ENV_PREFIX}{name}: {text}" if name else text


SERVICE_SECRET_ENV_PREFIX = "TIDEMILL_SECRET_"  # noqa: S105  where secrets are, not one of them
