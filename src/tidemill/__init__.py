"""Tidemill: a persist-first bulk job engine on PostgreSQL."""

from typing import TYPE_CHECKING, Any

from tidemill.core.errors import (
    Conflict,
    IdempotencyKeyReused,
    InvalidInput,
    InvalidSettings,
    TidemillError,
    Unavailable,
    UnknownJob,
    UnknownKind,
)
from tidemill.core.job import Counts, Item, ItemRecord, Job
from tidemill.core.outcome import Done, Fail, NotFound, Outcome, Retry, Skip
from tidemill.core.status import ItemStatus, JobStatus

if TYPE_CHECKING:
    from tidemill.app.mill import Mill
    from tidemill.config import Settings

    __version__: str

__all__ = [
    "Conflict",
    "Counts",
    "Done",
    "Fail",
    "IdempotencyKeyReused",
    "InvalidInput",
    "InvalidSettings",
    "Item",
    "ItemRecord",
    "ItemStatus",
    "Job",
    "JobStatus",
    "Mill",
    "NotFound",
    "Outcome",
    "Retry",
    "Settings",
    "Skip",
    "TidemillError",
    "Unavailable",
    "UnknownJob",
    "UnknownKind",
]


def __getattr__(name: str) -> Any:
    """Import Mill, Settings and the version on first use, because they load pydantic and the database driver."""
    if name == "Mill":
        from tidemill.app.mill import Mill  # noqa: PLC0415

        return Mill
    if name == "Settings":
        from tidemill.config import Settings  # noqa: PLC0415

        return Settings
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        return version("tidemill")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
