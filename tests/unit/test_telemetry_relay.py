"""Events of children on their way to the parent's metrics."""

import os
import select
from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.telemetry import events, relay
from tidemill.telemetry.events import emit, subscribe
from tidemill.telemetry.relay import Ear, Mouth, hand_events_to_parent

Event = tuple[str, dict[str, Any]]
LONG = "x" * 5_000


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_subscribers", [])
    monkeypatch.setattr(events, "_relayed", [])


@pytest.fixture
def heard() -> list[Event]:
    """What the parent hears of its children."""
    told: list[Event] = []
    subscribe(lambda name, fields: told.append((name, fields)), children=True)
    events._subscribers.clear()
    return told


@pytest.fixture
def ear() -> Iterator[Ear]:
    pipe = Ear()
    yield pipe
    pipe.close()


@pytest.fixture
def mouth(ear: Ear) -> Mouth:
    return Mouth(ear.mouth, 3)


def test_what_is_measured_arrives_without_whom_it_is_about(ear: Ear, mouth: Mouth, heard: list[Event]) -> None:
    mouth.hear("batch.stale", {"items": 3, "kind": "k", "job": "j", "batch": 1, "request_id": "r"})
    mouth.hear("worker.started", {"kinds": ["not measured"]})
    ear.read()
    assert heard == [("batch.stale", {"items": 3, "kind": "k", "child": 3})]


def test_codes_that_handlers_made_stay_in_the_child(ear: Ear, mouth: Mouth, heard: list[Event]) -> None:
    mouth.hear("item.retry", {"items": 3, "codes": {"timeout": 1, LONG: 2, "429": 5}})
    ear.read()
    assert heard == [("item.retry", {"items": 3, "codes": {"timeout": 1, "429": 5}, "child": 3})]


def test_what_was_said_outlives_who_said_it(ear: Ear, heard: list[Event]) -> None:
    pid = os.fork()
    if not pid:
        Mouth(ear.mouth, 0).hear("batch.stale", {"items": 1})
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    ear.read()
    assert heard == [("batch.stale", {"items": 1, "child": 0})]


def test_many_that_speak_at_once_are_all_understood(ear: Ear, heard: list[Event]) -> None:
    pids = []
    for child in range(4):
        pid = os.fork()
        if not pid:
            mouth = Mouth(ear.mouth, child)
            for n in range(200):
                mouth.hear("batch.stale", {"items": n, "kind": str(child) * 20})
            os._exit(0)
        pids.append(pid)
    while len(heard) < 800 and select.select([ear.fileno()], [], [], 10)[0]:
        ear.read()
    for pid in pids:
        os.waitpid(pid, 0)
    assert sorted({fields["kind"][0] for _, fields in heard}) == ["0", "1", "2", "3"]
    assert len(heard) == 800


def test_a_parent_that_does_not_read_costs_events_and_never_time(
    ear: Ear, mouth: Mouth, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "BACKLOG", 10)
    subscribe(mouth.hear)
    for n in range(5_000):
        emit("batch.stale", items=n)
    ear.read()
    emit("batch.stale", items=5_000)
    ear.read()
    lost = [fields["events"] for name, fields in heard if name == "relay.lost"]
    arrived = [fields["items"] for name, fields in heard if name == "batch.stale"]
    assert len(lost) == 1
    assert len(arrived) + lost[0] == 5_001
    assert arrived[-11:] == list(range(4_990, 5_001)), "the newest ones are kept"


def test_a_child_that_nobody_hears_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(relay.VARIABLE, raising=False)
    hand_events_to_parent(0)
    assert events._subscribers == []
    assert relay.ends_in({}) == ()


def test_a_child_finds_its_end_in_the_environment(
    ear: Ear, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(relay.VARIABLE, str(ear.mouth))
    hand_events_to_parent(2)
    emit("batch.stale", items=1)
    ear.read()
    assert heard == [("batch.stale", {"items": 1, "child": 2})]


def test_a_child_whose_parent_is_gone_works_on() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    mouth = Mouth(writing, 0)
    mouth.hear("batch.stale", {"items": 1})
    os.close(writing)
