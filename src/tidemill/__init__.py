"""Tidemill: a persist-first bulk job engine on PostgreSQL."""

from tidemill.app import Mill
from tidemill.domain.errors import TidemillError
from tidemill.domain.item import Item
from tidemill.domain.job import Counts, Job
from tidemill.domain.outcome import Done, Fail, NotFound, Outcome, Retry, Skip

__all__ = [
    "Counts",
    "Done",
    "Fail",
    "Item",
    "Job",
    "Mill",
    "NotFound",
    "Outcome",
    "Retry",
    "Skip",
    "TidemillError",
]
