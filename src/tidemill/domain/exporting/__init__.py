"""Exports of tables: what is asked for, which rows are meant, and what the file is. Pure."""

from tidemill.domain.exporting.filters import OPERATORS, Condition, Filter, from_object, from_query, parse_condition
from tidemill.domain.exporting.plan import ExportPlan, Order, TableExport, make_plan

__all__ = [
    "OPERATORS",
    "Condition",
    "ExportPlan",
    "Filter",
    "Order",
    "TableExport",
    "from_object",
    "from_query",
    "make_plan",
    "parse_condition",
]
