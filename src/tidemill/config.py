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

from tidemill.domain.addresses import Allowed
from tidemill.domain.errors import InvalidInput, InvalidSettings
from tidemill.domain.place import parse_place
from tidemill.domain.services.service import SECRET_PREFIX

PREFIX = "TIDEMILL_"
BROKERS = ("redis://", "rediss://", "amqp://", "amqps://")
Positive = Annotated[int, Field(gt=0)]
SessionSeconds = Annotated[int, Field(gt=0, le=30 * 86_400)]
Milliseconds = Annotated[int, Field(ge=0)]


def _parsed(value: object) -> object:
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


def _allowed(text: str) -> str:
    Allowed.parse(text)
    return text


def _text(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _place(text: str) -> str:
    try:
        parse_place(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return text


def _or_none(value: object) -> object:
    return None if value == "" else value


def _broker(text: str) -> str:
    if not text.startswith(BROKERS):
        raise ValueError(f"a broker's address begins with one of {', '.join(BROKERS)}")
    return text


Parsed = (NoDecode, BeforeValidator(_parsed))  # by us, so that a mistake is told like every other


class Settings(BaseSettings):
    """Every setting, its default, and what it does. The name in the environment is TIDEMILL_ + the upper case."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", populate_by_name=True)

    database_url: str | None = Field(
        None,
        validation_alias=AliasChoices("TIDEMILL_DATABASE_URL", "DATABASE_URL"),
        description="Any PostgreSQL 15-18; without it, an embedded one under TIDEMILL_HOME",
    )
    home: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("tidemill")),
        description="Where the embedded database and files live",
    )
    blobs: Annotated[str, BeforeValidator(_text), AfterValidator(_place)] = Field(
        default_factory=lambda data: str(data.get("home", Path()) / "blobs"),
        validation_alias=AliasChoices("TIDEMILL_BLOBS", "TIDEMILL_EXPORT_FILE_PATH"),
        description="Where stored files are: a folder, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix",
    )
    presigned_s: Annotated[int, Field(ge=0, le=7 * 86_400)] = Field(
        0,
        description="Downloads are redirected to the object store, by a link that is good for so long; 0: not",
    )
    config: Path | None = Field(
        None,
        description="The file that declares resources, datasets and watches; without it, tidemill.toml here, if any",
    )
    db_max_conns: Positive = Field(
        8, description="Connections a process may open at most, but one per lane and two more"
    )
    db_max_idle_conns: Positive = Field(1, description="Of these, how many stay open though nobody needs them")
    db_conn_max_lifetime: Positive = Field(3_600, description="Seconds after which a connection is replaced")
    db_prepare: bool = Field(True, description="Prepared statements; switch off behind some proxies")
    db_timeout_ms: Positive = Field(20_000, description="The longest a statement of a flush or a chunk may take")
    db_p50_ms: Positive = Field(50, description="Ingest chunks grow while their moving average is below this")
    db_p95_ms: Positive = Field(500, description="Ingest chunks shrink when one takes longer than this")

    ingest_min_rows: Positive = Field(64, description="The smallest chunk of items that is copied at once")
    ingest_max_rows: Positive = Field(10_000, description="The largest")
    ingest_max_batch_bytes: Positive = Field(4 * 1024 * 1024, description="The largest, in bytes")
    max_row_bytes: Positive = Field(4 * 1024 * 1024, description="An input beyond this is a bad row")
    max_unpacked_mb: Positive = Field(10_240, description="What a compressed file may unpack to")

    worker_pool_size: Positive = Field(1, description="Child processes of a worker (--processes)")
    worker_lanes: Positive = Field(2, description="Batches a child process holds at a time")
    worker_target_slice_ms: Positive = Field(5_000, description="How long a claimed batch should take")
    claim_min: Positive = Field(1, description="The fewest items a claim takes, if there are so many")
    claim_max: Annotated[int, Field(gt=0, le=100_000)] = Field(1_000, description="The most")
    safety_factor: Annotated[float, Field(gt=0, le=1)] = Field(0.7, description="Of the slice, used when sizing claims")
    lock_floor_ms: Positive = Field(30_000, description="The shortest lease")
    lock_cap_ms: Positive = Field(600_000, description="The longest lease")
    max_attempts_error: Positive = Field(3, description="Attempts at an item whose handler fails")
    max_attempts_not_found: Positive = Field(2, description="Attempts at an item that is not found")
    max_concurrent_jobs: Positive = Field(5, description="Jobs of one owner that turn at the same time")
    batch_size: Positive = Field(100, description="Outcomes per flush, at least, while a batch goes on")
    flush_interval_ms: Positive = Field(5_000, description="The longest an outcome waits to be flushed")
    flush_buffer: Positive = Field(
        500, description="Outcomes that may wait, or twice a flush if that is more; handlers pause beyond it"
    )
    broker: Annotated[Annotated[str, AfterValidator(_broker)] | None, BeforeValidator(_or_none)] = Field(
        None, description="redis://… or amqp://…: hints travel through it (extra `brokers`); without it, the database"
    )
    resend_after_s: Positive = Field(
        60, description="A job that is due and that nobody has looked at for so long gets another hint"
    )
    poll_ms: Positive = Field(1_000, description="How often an idle worker looks, when nothing wakes it")
    finalizer_interval_ms: Annotated[int, Field(ge=50, le=5_000)] = Field(
        1_000, description="How often leases that ran out are taken back, and drained jobs closed"
    )
    stop_grace_ms: Milliseconds = Field(20_000, description="How long a stopping worker lets items finish")
    child_memory_mb: Positive = Field(2_048, description="Memory a child process may use")
    cpu_high_percent: Positive = Field(300, description="Load per core beyond which claims shrink; 100 is a busy core")
    memory_high_percent: Annotated[int, Field(gt=0, le=100)] = Field(
        85, description="Used memory, of the machine or of a child's own, beyond which claims shrink"
    )

    http_host: str = Field("127.0.0.1", description="The address `tidemill serve` listens on")
    http_port: Annotated[int, Field(ge=0, le=65535)] = Field(8484, description="Its port; 0 for any that is free")
    max_file_size_mb: Positive = Field(500, description="The largest file that may be uploaded")
    max_json_bytes: Positive = Field(16 * 1024 * 1024, description="The largest JSON body of a request")
    max_inline_inputs: Positive = Field(100_000, description="Inputs in a JSON body, at most; more come as a file")
    rate_limit_per_s: Positive = Field(100, description="Requests a second that one key may make, on average")
    rate_limit_burst: Positive = Field(200, description="And at once")
    session_idle_s: SessionSeconds = Field(3_600, description="A browser that does nothing for so long is signed out")
    session_max_s: SessionSeconds = Field(43_200, description="And one that signed in so long ago, whatever it does")
    cors_origins: Annotated[list[str], *Parsed] = Field([], description="Sites whose pages may call the API")
    trusted_proxies: Annotated[list[IPvAnyNetwork], *Parsed] = Field(
        [], description="Addresses or networks of proxies whose X-Forwarded-For and -Proto are believed"
    )
    sources: Annotated[dict[str, Path], *Parsed] = Field(
        {}, description="Folders that submissions may refer to, as JSON: name to path"
    )
    scan_watches: bool = Field(True, description="Whether workers look at what watches watch")
    scan_max_files: Annotated[int, Field(gt=0, le=10_000)] = Field(
        100, description="Files that one scan of a watch takes at most; the next goes on"
    )
    known_hosts: Path | None = Field(None, description="The host keys of SFTP servers; without it, ~/.ssh/known_hosts")
    remote_url_timeout: Positive = Field(300, description="Seconds that fetching a file from a URL may take at most")
    remote_allow: Annotated[list[Annotated[str, AfterValidator(_allowed)]], *Parsed] = Field(
        [], description="Hosts and networks, each with a port or not, that files are fetched from though not public"
    )
    export_ttl_hours: Annotated[int, Field(gt=0, le=100 * 366 * 24)] = Field(
        168, description="The file of an export is kept for so long"
    )
    export_streams: Positive = Field(8, description="Exports that one service streams at the same time")
    reuse_enabled: bool = Field(True, description="Whether distributions use files again that were made before")
    reuse_days: Annotated[int, Field(ge=0, le=36_500)] = Field(
        7, description="Files of inputs whose date is younger than so many days are made anew"
    )
    distribution_max_attempts: Annotated[int, Field(gt=0, le=1_000)] = Field(
        5, description="Attempts at an input of a distribution that fails"
    )
    distribution_backoff_ms: Milliseconds = Field(
        1_000, description="Before its second attempt; doubled from there, with jitter"
    )
    distribution_timeout_s: Positive = Field(300, description="How long a file may take")
    max_distribution_inputs: Positive = Field(100_000, description="Inputs of a distribution, at most")
    pending_dashboard: bool = Field(True, description="Whether /v1/pending, across jobs, is there")

    slow_query_ms: Positive = Field(500, description="A transaction that takes longer is told of")
    enable_metrics: bool = Field(True, description="Whether anything is measured for Prometheus")
    metrics_path: str = Field("/metrics", pattern=r"^/[\w./~-]*$", description="Where Prometheus asks")
    metrics_host: str = Field("127.0.0.1", min_length=1, description="The address on which a worker answers it")
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        None, description="A worker answers on this port, or the next free one; 0 for any; without it, not at all"
    )
    log_level: str = Field(
        "info", pattern="(?i)^(debug|info|warning|error)$", description="debug, info, warning, error"
    )

    @model_validator(mode="after")
    def _bounds(self) -> Self:
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
    problems = _unknown_names()
    values = {name: value for name, value in overrides.items() if value is not None}
    while True:
        try:
            settings = Settings(**values)  # type: ignore[arg-type]
            break
        except ValidationError as error:
            wrong = [detail["loc"] for detail in error.errors()]
            problems += [_problem(detail["loc"], detail["msg"]) for detail in error.errors()]
            if () in wrong:
                break
            # What is wrong is set aside, to see what else is: pairs are compared only when each value is good.
            values |= {_field(location): _default(_field(location)) for location in wrong}
    if problems:
        raise InvalidSettings("cannot start with these settings:\n" + "\n".join(f"  - {line}" for line in problems))
    return settings


def known_names() -> set[str]:
    """What settings are called in the environment; some have two names."""
    aliases = [getattr(field.validation_alias, "choices", ()) for field in Settings.model_fields.values()]
    return {PREFIX + name.upper() for name in Settings.model_fields}.union(*aliases)


def _default(name: str) -> object:
    return Settings.model_fields[name].get_default(call_default_factory=True, validated_data={})


def _field(location: tuple[int | str, ...]) -> str:
    return str(location[0]).lower().removeprefix(PREFIX.lower())


def _unknown_names() -> list[str]:
    known = known_names()
    return [
        f"{name}: there is no such setting"
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and not name.startswith(SECRET_PREFIX) and name not in known
    ]


def _problem(location: tuple[int | str, ...], message: str) -> str:
    name = ".".join(str(part) for part in location).upper().removeprefix(PREFIX)
    text = message.removeprefix("Value error, ")
    return f"{PREFIX}{name}: {text}" if name else text
