"""The only place that wires things together."""

from tidemill.app.mill import Mill
from tidemill.app.wiring import (
    make_context,
    make_datasets,
    make_distributions,
    make_importing,
    make_resources,
    make_scanner,
    make_services,
    make_sources,
    open_database,
    run_in,
)
from tidemill.app.worker import Worker

__all__ = [
    "Mill",
    "Worker",
    "make_context",
    "make_datasets",
    "make_distributions",
    "make_importing",
    "make_resources",
    "make_scanner",
    "make_services",
    "make_sources",
    "open_database",
    "run_in",
]
