"""Events as log lines: JSON, or readable on a terminal."""

import logging
import sys
from typing import Any

import structlog

from tidemill.telemetry.events import subscribe

_LEVELS = {
    "batch.stale": logging.WARNING,
    "ingest.stale": logging.WARNING,
    "batch.swept": logging.WARNING,
    "buffer.high": logging.WARNING,
    "child.died": logging.WARNING,
    "item.poison": logging.ERROR,
    "job.failed": logging.ERROR,
    "loop.failed": logging.ERROR,
    "database.retry": logging.WARNING,
    "listen.lost": logging.WARNING,
    "batch.claimed": logging.DEBUG,
    "batch.flushed": logging.DEBUG,
    "ingest.chunk": logging.DEBUG,
    "page.listed": logging.DEBUG,
}


def log_events(level: str, **context: Any) -> None:
    """Write every event to standard error, from ``level`` on."""
    renderer: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(**context)
    log = structlog.get_logger()

    def write(name: str, fields: dict[str, Any]) -> None:
        log.log(_LEVELS.get(name, logging.INFO), name, **{key: _plain(value) for key, value in fields.items()})

    subscribe(write)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | str | list | dict | None) else str(value)
