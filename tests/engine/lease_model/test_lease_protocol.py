"""All states of the lease protocol within a bound keep the invariants, and the store does what the model does."""

import random
from collections.abc import Iterator

import pytest

from engine.lease_model.exploration import Exploration, InvariantError
from engine.lease_model.model_state import ModelAction, make_initial_state
from engine.lease_model.protocol import ALL_GUARDS, Protocol
from engine.lease_model.replay import Replay
from engine.state_machine.database import World
from tidemill.testing.throwaway_postgres import ThrowawayServer

WORKERS = 3
FULL = pytest.mark.full
SEED = 19
MIN_SORTS_OF_STEPS = 55


@pytest.fixture
def world(tidemill_server: ThrowawayServer) -> Iterator[World]:
    url = tidemill_server.create_database()
    world = World(url)
    yield world
    world.close()
    tidemill_server.drop_database(url)


@pytest.mark.parametrize(
    ("ranges", "faults", "redrives"),
    [((1, 1), 1, 0), pytest.param((1, 1), 2, 1, marks=FULL), pytest.param((2, 1), 1, 0, marks=FULL)],
)
def test_every_state_keeps_invariants_and_can_be_closed(
    ranges: tuple[int, ...], faults: int, redrives: int, capsys: pytest.CaptureFixture[str]
) -> None:
    explored = Exploration(make_initial_state(ranges, WORKERS, faults, redrives))
    with capsys.disabled():
        print(f" {len(explored.states):,} states, {sum(explored.labels.values()):,} steps ", end="")  # noqa: T201
    assert explored.is_complete
    assert explored.find_stuck_states() == []


@pytest.mark.parametrize("guard", sorted(ALL_GUARDS))
def test_protocol_without_guard_violates_invariants(guard: str) -> None:
    with pytest.raises(InvariantError):
        Exploration(make_initial_state((2, 1), WORKERS, 2, 0), Protocol(ALL_GUARDS - {guard}))


def choose_traces(explored: Exploration, count: int, seed: int) -> list[list[ModelAction]]:
    """Choose traces that end in a step of each sort, and further ones at random."""
    chance = random.Random(seed)
    edges = [chance.choice(explored.samples[label]) for label in sorted(explored.samples)]
    others = [edge for label in sorted(explored.samples) for edge in explored.samples[label]]
    edges += chance.sample(others, max(0, min(count - len(edges), len(others))))
    return [explored.trace(edge) for edge in edges]


@pytest.mark.parametrize(
    ("max_states", "count"), [(6_000, 80), pytest.param(150_000, 1_000, marks=FULL)], ids=["short", "long"]
)
def test_store_matches_model_after_each_step_of_sampled_traces(
    world: World, max_states: int, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    initial = make_initial_state((2, 1), WORKERS, faults=4, redrives=1)
    explored = Exploration(initial, max_states=max_states, seed=SEED)
    assert len(explored.labels) >= MIN_SORTS_OF_STEPS, sorted(explored.labels)
    traces = choose_traces(explored, count, seed=SEED)
    replay = Replay(world)
    steps = sum(world.do(replay.run(initial, trace)) for trace in traces)
    with capsys.disabled():
        print(f" {len(explored.states):,} states, {len(traces)} traces, {steps:,} steps replayed ", end="")  # noqa: T201
