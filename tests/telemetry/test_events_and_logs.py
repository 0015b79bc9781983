"""Tests of events and log lines."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog

import tidemill
from tidemill.telemetry import events, logs
from tidemill.telemetry.events import Event, bind_fields, emit, publish_child_event, subscribe
from tidemill.telemetry.logs import configure_event_logging


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(events, "_subscribers", [])
    monkeypatch.setattr(events, "_child_event_subscribers", [])
    yield
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def hear(into: list[Event]) -> Any:
    return subscribe(into.append)


def test_subscriber_receives_events_until_unsubscribed() -> None:
    one, two = list[Event](), list[Event]()
    leave = hear(one)
    hear(two)
    emit("job.closed", job=1)
    leave()
    leave()
    emit("job.failed", job=2)
    assert one == [("job.closed", {"job": 1})]
    assert two == [("job.closed", {"job": 1}), ("job.failed", {"job": 2})]


def test_failing_subscriber_does_not_affect_others() -> None:
    def broken(_: Event) -> None:
        raise ZeroDivisionError

    heard = list[Event]()
    subscribe(broken)
    hear(heard)
    emit("job.closed", job=1)
    assert heard == [("job.closed", {"job": 1})]


def test_child_events_reach_only_subscribers_with_children_option() -> None:
    ours, all_of_it = list[Event](), list[Event]()
    hear(ours)
    leave = subscribe(all_of_it.append, children=True)
    emit("job.closed", job=1)
    publish_child_event(Event("batch.stale", {"items": 2}))
    leave()
    publish_child_event(Event("batch.stale", {"items": 3}))
    emit("job.closed", job=4)
    assert ours == [("job.closed", {"job": 1}), ("job.closed", {"job": 4})]
    assert all_of_it == [("job.closed", {"job": 1}), ("batch.stale", {"items": 2})]


async def test_bound_fields_are_added_to_events_and_inherited_by_tasks() -> None:
    heard = list[Event]()
    hear(heard)

    async def later() -> None:
        emit("batch.stale", items=1)

    with bind_fields(job=5, request_id="abc-1", traceparent=None):
        task = asyncio.create_task(later())
        with bind_fields(batch=7):
            emit("batch.flushed", items=3, job=6)
    emit("worker.stopped", worker="w")
    await task
    assert heard == [
        ("batch.flushed", {"job": 6, "request_id": "abc-1", "batch": 7, "items": 3}),
        ("worker.stopped", {"worker": "w"}),
        ("batch.stale", {"job": 5, "request_id": "abc-1", "items": 1}),
    ]


def test_job_request_id_overrides_current_one_kept_as_by_request_id() -> None:
    heard = list[Event]()
    hear(heard)
    with bind_fields(request_id="pause-1"):
        with bind_fields(job=5, request_id="submit-1"):
            emit("job.paused", job=5)
        with bind_fields(job=6, request_id=None):
            emit("job.paused", job=6)
        with bind_fields(job=7, request_id="pause-1"):
            emit("job.paused", job=7)
    assert [fields for _, fields in heard] == [
        {"job": 5, "request_id": "submit-1", "by_request_id": "pause-1"},
        {"job": 6, "request_id": "pause-1"},
        {"job": 7, "request_id": "pause-1"},
    ]


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_events_are_logged_as_json_with_context_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_event_logging("info", worker="w1", child=2)
    emit("job.closed", job=UUID(int=5), closed_as="completed")
    (line,) = lines(capsys)
    assert line.pop("timestamp")
    assert line == {
        "event": "job.closed",
        "level": "info",
        "worker": "w1",
        "child": 2,
        "job": str(UUID(int=5)),
        "closed_as": "completed",
    }


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["batch.claimed", "job.closed", "batch.stale", "item.poison"]),
        ("INFO", ["job.closed", "batch.stale", "item.poison"]),
        ("warning", ["batch.stale", "item.poison"]),
        ("error", ["item.poison"]),
    ],
)
def test_log_level_filters_lower_events(capsys: pytest.CaptureFixture[str], level: str, written: list[str]) -> None:
    configure_event_logging(level)
    for name in ("batch.claimed", "job.closed", "batch.stale", "item.poison"):
        emit(name, job=1)
    assert [line["event"] for line in lines(capsys)] == written


def test_log_serializes_any_value(capsys: pytest.CaptureFixture[str]) -> None:
    configure_event_logging("info")
    values = {"at": datetime(2026, 1, 1, tzinfo=UTC), "error": ValueError("no"), "path": Path("a"), "none": None}
    emit("worker.started", kinds=["a"], **values)
    (line,) = lines(capsys)
    assert (line["error"], line["path"], line["none"], line["kinds"]) == ("no", "a", None, ["a"])


def test_handler_log_messages_include_bound_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_event_logging("info", worker="w1")
    with bind_fields(job=UUID(int=5), batch=7, request_id="abc-1"):
        structlog.get_logger().info("called the shop", sku=3)
    (line,) = lines(capsys)
    said = (line["worker"], line["job"], line["batch"], line["request_id"], line["sku"])
    assert said == ("w1", str(UUID(int=5)), 7, "abc-1", 3)


def test_log_fields_have_fixed_order(capsys: pytest.CaptureFixture[str]) -> None:
    configure_event_logging("info", child=1, worker="w1")
    emit("batch.released", items=3, batch=2, job=1, request_id="r", kind="k")
    first = ["timestamp", "level", "event", "worker", "child", "job", "kind", "batch", "request_id"]
    assert list(lines(capsys)[0]) == [*first, "items"]


@pytest.mark.parametrize(
    ("name", "fields", "level"),
    [
        ("job.closed", {"error_rate": 0.1}, logging.INFO),
        ("job.closed", {"error_rate": 0.11}, logging.WARNING),
        ("ingest.completed", {"error_rate": 0.5}, logging.WARNING),
        ("request.done", {"status": 404}, logging.INFO),
        ("request.done", {"status": 503}, logging.WARNING),
        ("page.listed", {}, logging.DEBUG),
    ],
)
def test_log_level_is_raised_for_high_error_rate_and_server_errors(
    name: str, fields: dict[str, Any], level: int
) -> None:
    assert logs.choose_log_level(Event(name, fields)) == level


def test_terminal_log_prints_traceback_below_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    configure_event_logging("info")
    emit("handler.failed", type="ValueError", traceback="Traceback …\n  File x\nValueError: no")
    line, *below = screen.getvalue().splitlines()
    assert "handler.failed" in line
    assert below == ["Traceback …", "  File x", "ValueError: no"]


def documented() -> dict[str, set[str]]:
    """Return every event of the table with the names of its fields."""
    assert events.__doc__ is not None
    table = re.findall(r"^([a-z]+\.[a-z]+) +((?:\w+,\s+)*\w+)  ", events.__doc__, re.MULTILINE)
    return {name: set(re.split(r",\s+", fields)) for name, fields in table}


def sources() -> str:
    files = Path(tidemill.__file__).parent.rglob("*.py")
    return "\n".join(file.read_text() for file in files if file != Path(events.__file__))


def emitted() -> dict[str, set[str]]:
    """Return every event that the source code emits, with the names of its fields."""
    found = re.findall(r'\bemit\(\s*"([a-z.]+)"((?:[^()]|\([^()]*\))*)\)', sources())
    return {name: set(re.findall(r"\b([a-z_]+)=", arguments)) for name, arguments in found}


def test_every_documented_event_is_emitted() -> None:
    text = sources()
    assert [name for name in documented() if f'"{name}"' not in text] == []


def test_emitted_event_has_exactly_documented_fields() -> None:
    told = emitted()
    assert len(told) > 10
    assert told == {name: documented().get(name) for name in told}


def test_log_levels_exist_only_for_documented_events() -> None:
    assert set(logs._EVENT_LEVELS) <= set(documented())
