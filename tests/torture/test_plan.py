"""The plan of a run depends on its seed alone."""

from tidemill.torture.faults import FAULTS
from tidemill.torture.plan import JOB_SHAPES, Round, plan_rounds


def plan(seed: int, seconds: float) -> list[Round]:
    return list(plan_rounds(seed, seconds, 30.0, jobs=list(JOB_SHAPES), faults=FAULTS))


def test_same_seed_gives_same_plan() -> None:
    assert plan(1, 120.0) == plan(1, 120.0)
    assert plan(1, 120.0) != plan(2, 120.0)


def test_longer_run_begins_with_rounds_of_shorter_run() -> None:
    assert plan(1, 300.0)[:4] == plan(1, 120.0)


def test_every_fault_occurs_before_one_occurs_again() -> None:
    names = [fault.name for one in plan(3, 300.0) for fault in one.faults]
    assert set(names[: len(FAULTS)]) == set(FAULTS)
