"""Tests of the events that children send to their parent."""

import os
import select
from collections.abc import Iterator

import pytest

from tidemill.telemetry import child_events, events
from tidemill.telemetry.child_events import ChildEventReader, ChildEventWriter, relay_events_to_parent
from tidemill.telemetry.events import Event, emit, subscribe

LONG = "x" * 5_000


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_subscribers", [])
    monkeypatch.setattr(events, "_child_event_subscribers", [])


@pytest.fixture
def heard() -> list[Event]:
    """Record the events that the parent receives from its children."""
    told: list[Event] = []
    subscribe(told.append, children=True)
    events._subscribers.clear()
    return told


@pytest.fixture
def ear() -> Iterator[ChildEventReader]:
    pipe = ChildEventReader()
    yield pipe
    pipe.close()


@pytest.fixture
def mouth(ear: ChildEventReader) -> ChildEventWriter:
    return ChildEventWriter(ear.write_fd, 3)


def test_relayed_event_has_only_measured_fields(
    ear: ChildEventReader, mouth: ChildEventWriter, heard: list[Event]
) -> None:
    mouth.write_event(Event("batch.stale", {"items": 3, "kind": "k", "job": "j", "batch": 1, "request_id": "r"}))
    mouth.write_event(Event("worker.started", {"kinds": ["not measured"]}))
    ear.relay_pending_events()
    assert heard == [("batch.stale", {"items": 3, "kind": "k", "child": 3})]


def test_relayed_event_omits_handler_defined_error_codes(
    ear: ChildEventReader, mouth: ChildEventWriter, heard: list[Event]
) -> None:
    mouth.write_event(Event("item.retry", {"items": 3, "codes": {"timeout": 1, LONG: 2, "429": 5}}))
    ear.relay_pending_events()
    assert heard == [("item.retry", {"items": 3, "codes": {"timeout": 1, "429": 5}, "child": 3})]


def test_relayed_event_of_killed_child_is_delivered(ear: ChildEventReader, heard: list[Event]) -> None:
    pid = os.fork()
    if not pid:
        ChildEventWriter(ear.write_fd, 0).write_event(Event("batch.stale", {"items": 1}))
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    ear.relay_pending_events()
    assert heard == [("batch.stale", {"items": 1, "child": 0})]


def test_relayed_events_of_concurrent_children_are_all_delivered(ear: ChildEventReader, heard: list[Event]) -> None:
    pids = []
    for child in range(4):
        pid = os.fork()
        if not pid:
            mouth = ChildEventWriter(ear.write_fd, child)
            for n in range(200):
                mouth.write_event(Event("batch.stale", {"items": n, "kind": str(child) * 20}))
            os._exit(0)
        pids.append(pid)
    while len(heard) < 800 and select.select([ear.fileno()], [], [], 10)[0]:
        ear.relay_pending_events()
    for pid in pids:
        os.waitpid(pid, 0)
    assert sorted({fields["kind"][0] for _, fields in heard}) == ["0", "1", "2", "3"]
    assert len(heard) == 800


def test_relay_drops_oldest_events_without_blocking_when_pipe_is_full(
    ear: ChildEventReader, mouth: ChildEventWriter, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_events, "MAX_BACKLOG_EVENTS", 10)
    subscribe(mouth.write_event)
    for n in range(5_000):
        emit("batch.stale", items=n)
    ear.relay_pending_events()
    emit("batch.stale", items=5_000)
    ear.relay_pending_events()
    lost = [fields["events"] for name, fields in heard if name == "relay.lost"]
    arrived = [fields["items"] for name, fields in heard if name == "batch.stale"]
    assert len(lost) == 1
    assert len(arrived) + lost[0] == 5_001
    assert arrived[-11:] == list(range(4_990, 5_001)), "the newest ones are kept"


def test_child_without_event_pipe_relays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(child_events.EVENT_PIPE_VARIABLE, raising=False)
    relay_events_to_parent(0)
    assert events._subscribers == []
    assert child_events.list_event_pipe_fds({}) == ()


def test_child_reads_event_pipe_from_environment(
    ear: ChildEventReader, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(child_events.EVENT_PIPE_VARIABLE, str(ear.write_fd))
    relay_events_to_parent(2)
    emit("batch.stale", items=1)
    ear.relay_pending_events()
    assert heard == [("batch.stale", {"items": 1, "child": 2})]


def test_child_ignores_closed_event_pipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    mouth = ChildEventWriter(writing, 0)
    mouth.write_event(Event("batch.stale", {"items": 1}))
    os.close(writing)
