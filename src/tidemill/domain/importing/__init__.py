"""Imports: what is asked for, which column is which field, and what is wrong with rows. Pure."""

from tidemill.domain.importing.check import Checked, Checker, picked
from tidemill.domain.importing.mapping import Columns, guess
from tidemill.domain.importing.plan import KIND, Duplicates, ImportPlan, ImportRequest, Mode, columns_of, make_plan

__all__ = [
    "KIND",
    "Checked",
    "Checker",
    "Columns",
    "Duplicates",
    "ImportPlan",
    "ImportRequest",
    "Mode",
    "columns_of",
    "guess",
    "make_plan",
    "picked",
]
