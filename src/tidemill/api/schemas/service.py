"""The service itself."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

HealthStatus = TypeAliasType("HealthStatus", Literal["ok", "degraded", "unfit"])


class Front(BaseModel):
    """What this is, and where to go on."""

    service: str
    version: str
    openapi: str
    health: str


class Health(BaseModel):
    """Degraded: it works, and somebody should look."""

    status: HealthStatus
    database: str = Field(description="`ok`, or what is wrong")
    migrations: str = Field(description="`ok`, or what is wrong")
    workers: int = Field(description="That were heard of in the last half minute")
    open_jobs: int
    queue_age_s: float = Field(
        description="How long the oldest batch that is due, or source that nobody reads, has waited"
    )
    reasons: list[str] = Field(description="Why it is degraded")
    broker: str | None = Field(
        description="`ok` or `lost`, in which case work goes on by polling; null if there is none"
    )
    outbox: int = Field(description="Hints that wait for the broker")
    outbox_age_s: float = Field(description="How long the oldest of them has waited")
    quarantined: int = Field(description="Messages that are no hints, for an admin to look at")


class Limits(BaseModel):
    """What a request may be. Beyond the size of a body it is refused as 413, of a row as 422."""

    max_file_size_mb: int
    max_json_bytes: int
    max_row_bytes: int
    max_inline_inputs: int = Field(description="Of a submission as JSON; more come as a file")
    rate_limit_per_s: int
    rate_limit_burst: int
    max_concurrent_jobs: int = Field(description="Jobs of one user that turn at the same time; others wait")
    max_distribution_inputs: int
    sources: list[str] = Field(description="Names that a submission's source may have")
    pending_dashboard: bool


class WorkerOut(BaseModel):
    """A parent process and its children."""

    id: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime
    silent_s: float
    in_hand: int = Field(description="Items that it has leased")
    info: dict[str, Any] = Field(description="Its kinds and processes, and what they have settled on")
