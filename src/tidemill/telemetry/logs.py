"""Writes events as log lines: as JSON, or formatted for a terminal."""

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from tidemill.telemetry.events import Event, get_bound_fields, subscribe

WARNING_ERROR_RATE = 0.1

_EVENT_LEVELS = {
    "batch.stale": logging.WARNING,
    "ingest.stale": logging.WARNING,
    "batch.disconnected": logging.WARNING,
    "batch.swept": logging.WARNING,
    "buffer.high": logging.WARNING,
    "limiter.blocked": logging.WARNING,
    "child.died": logging.WARNING,
    "handler.failed": logging.WARNING,
    "item.poison": logging.ERROR,
    "job.failed": logging.ERROR,
    "loop.failed": logging.ERROR,
    "clock.rewound": logging.WARNING,
    "migration.blocked": logging.WARNING,
    "hook.failed": logging.ERROR,
    "request.failed": logging.ERROR,
    "response.aborted": logging.WARNING,
    "export.failed": logging.WARNING,
    "database.retry": logging.WARNING,
    "file.abandoned": logging.WARNING,
    "store.unavailable": logging.WARNING,
    "artifact.gone": logging.WARNING,
    "service.refused": logging.WARNING,
    "service.failed": logging.WARNING,
    "service.called": logging.DEBUG,
    "postgres.lost": logging.WARNING,
    "postgres.failed": logging.ERROR,
    "postgres.abandoned": logging.ERROR,
    "query.slow": logging.WARNING,
    "relay.lost": logging.WARNING,
    "listen.lost": logging.WARNING,
    "watch.passed": logging.WARNING,
    "watch.failed": logging.WARNING,
    "broker.lost": logging.WARNING,
    "hint.quarantined": logging.WARNING,
    "hints.resent": logging.WARNING,
    "hint.dropped": logging.DEBUG,
    "hint.heard": logging.DEBUG,
    "hints.sent": logging.DEBUG,
    "outbox.sampled": logging.DEBUG,
    "batch.claimed": logging.DEBUG,
    "batch.flushed": logging.DEBUG,
    "batch.split": logging.DEBUG,
    "database.latency": logging.DEBUG,
    "ingest.chunk": logging.DEBUG,
    "limiter.taken": logging.DEBUG,
    "page.listed": logging.DEBUG,
    "pool.waited": logging.DEBUG,
    "queue.sampled": logging.DEBUG,
    "watch.scanned": logging.DEBUG,
    "worker.adapted": logging.DEBUG,
}
# Events that are logged as a warning when the condition holds, and at their usual level otherwise.
_WARNING_CONDITIONS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "job.closed": lambda fields: fields.get("error_rate", 0) > WARNING_ERROR_RATE,
    "ingest.completed": lambda fields: fields.get("error_rate", 0) > WARNING_ERROR_RATE,
    "import.completed": lambda fields: fields.get("error_rate", 0) > WARNING_ERROR_RATE,
    "request.done": lambda fields: fields.get("status", 0) >= 500,  # noqa: PLR2004
}
_LEADING_FIELDS = ("timestamp", "level", "event", "worker", "child", "job", "kind", "batch", "request_id")


def configure_event_logging(level: str, **context: Any) -> None:
    """Write events of at least ``level`` to standard error; every line has the fields of ``context``."""
    least = logging.getLevelNamesMapping()[level.upper()]
    renderer: Any = structlog.processors.JSONRenderer(default=str)
    if sys.stderr.isatty():
        renderer = _render_with_traceback_below(structlog.dev.ConsoleRenderer(sort_keys=False))

    def merge_bound_fields(_logger: Any, _method: str, line: Any) -> Any:
        # Log lines that handlers write with structlog get the fields of their job, too.
        return {**context, **get_bound_fields(), **line}

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            merge_bound_fields,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            _order_fields,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(
            sys.stderr
        ),  # one write per line, because children share the stream
    )
    log = structlog.get_logger()

    def write_event(event: Event) -> None:
        level = choose_log_level(event)
        if level >= least:
            log.log(level, event.name, **{key: _to_loggable(value) for key, value in event.fields.items()})

    subscribe(write_event)


def _render_with_traceback_below(render: Callable[[Any, str, Any], str]) -> Callable[[Any, str, Any], str]:
    """Return a renderer for a terminal, which prints the traceback of an event below its line."""

    def render_line(logger: Any, method: str, line: Any) -> str:
        traceback = line.pop("traceback", None)
        text = render(logger, method, line)
        return text if traceback is None else f"{text}\n{traceback}"

    return render_line


def choose_log_level(event: Event) -> int:
    deserves_warning = _WARNING_CONDITIONS.get(event.name)
    if deserves_warning is not None and deserves_warning(event.fields):
        return logging.WARNING
    return _EVENT_LEVELS.get(event.name, logging.INFO)


def _order_fields(_logger: Any, _method: str, line: Any) -> Any:
    """Put the common fields first."""
    return {key: line[key] for key in _LEADING_FIELDS if key in line} | {
        k: v for k, v in line.items() if k not in _LEADING_FIELDS
    }


def _to_loggable(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | str | list | dict | None) else str(value)
