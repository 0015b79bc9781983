"""Named events and the log lines they become."""

import json
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
from tidemill.telemetry.events import emit, subscribe
from tidemill.telemetry.logs import log_events

Event = tuple[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(events, "_subscribers", [])
    yield
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def hear(into: list[Event]) -> Any:
    return subscribe(lambda name, fields: into.append((name, fields)))


def test_every_subscriber_hears_until_it_leaves() -> None:
    one, two = list[Event](), list[Event]()
    leave = hear(one)
    hear(two)
    emit("job.closed", job=1)
    leave()
    leave()
    emit("job.failed", job=2)
    assert one == [("job.closed", {"job": 1})]
    assert two == [("job.closed", {"job": 1}), ("job.failed", {"job": 2})]


def test_a_failing_subscriber_hurts_nobody() -> None:
    def broken(_name: str, _fields: dict[str, Any]) -> None:
        raise ZeroDivisionError

    heard = list[Event]()
    subscribe(broken)
    hear(heard)
    emit("job.closed", job=1)
    assert heard == [("job.closed", {"job": 1})]


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_events_are_written_as_json_with_what_they_are_about(capsys: pytest.CaptureFixture[str]) -> None:
    log_events("info", worker="w1", child=2)
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
def test_a_level_keeps_the_lesser_ones_out(capsys: pytest.CaptureFixture[str], level: str, written: list[str]) -> None:
    log_events(level)
    for name in ("batch.claimed", "job.closed", "batch.stale", "item.poison"):
        emit(name, job=1)
    assert [line["event"] for line in lines(capsys)] == written


def test_any_value_can_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    log_events("info")
    values = {"at": datetime(2026, 1, 1, tzinfo=UTC), "error": ValueError("no"), "path": Path("a"), "none": None}
    emit("worker.started", kinds=["a"], **values)
    (line,) = lines(capsys)
    assert (line["error"], line["path"], line["none"], line["kinds"]) == ("no", "a", None, ["a"])


def documented() -> dict[str, set[str]]:
    """Every event of the table, with the names of its fields."""
    assert events.__doc__ is not None
    table = re.findall(r"^([a-z]+\.[a-z]+) +((?:\w+, )*\w+)  ", events.__doc__, re.MULTILINE)
    return {name: set(fields.split(", ")) for name, fields in table}


def sources() -> str:
    files = Path(tidemill.__file__).parent.rglob("*.py")
    return "\n".join(file.read_text() for file in files if file != Path(events.__file__))


def emitted() -> dict[str, set[str]]:
    """Every event that the source tells of by name, with the names of its fields."""
    found = re.findall(r'\bemit\(\s*"([a-z.]+)"((?:[^()]|\([^()]*\))*)\)', sources())
    return {name: set(re.findall(r"\b([a-z_]+)=", arguments)) for name, arguments in found}


def test_every_documented_event_is_told_of() -> None:
    text = sources()
    assert [name for name in documented() if f'"{name}"' not in text] == []


def test_every_event_has_the_fields_that_its_documentation_names() -> None:
    told = emitted()
    assert len(told) > 10
    assert told == {name: documented().get(name) for name in told}


def test_only_documented_events_have_a_level() -> None:
    assert set(logs._LEVELS) <= set(documented())
