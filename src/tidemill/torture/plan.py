"""The plan of a run: jobs, operations and faults with their times and targets, all from one seed."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidemill.torture.workload import DENSE_KIND, ITEM_KIND, SPARSE_KIND

T = TypeVar("T")
EXPORT, IMPORT_INSERT, IMPORT_UPSERT, DISTRIBUTION, ENRICHMENT = "export", "insert", "upsert", "distribution", "enrich"
FEATURE_JOBS = (EXPORT, IMPORT_INSERT, IMPORT_UPSERT, DISTRIBUTION, ENRICHMENT)
JOB_SHAPES = {  # what -> (weight, fewest rows, most rows)
    ITEM_KIND: (4, 50, 300),
    DENSE_KIND: (3, 100, 800),
    SPARSE_KIND: (3, 100, 800),
    IMPORT_INSERT: (2, 200, 3_000),
    IMPORT_UPSERT: (2, 200, 3_000),
    EXPORT: (2, 1, 1),
    DISTRIBUTION: (1, 4, 12),
    ENRICHMENT: (1, 10, 60),
}
OPERATION_WEIGHTS = {"pause": 3, "resume": 6, "cancel": 2, "reprocess": 6, "redrive": 3, "fix": 4, "delete": 1}
JOB_PAUSE_S, OPERATION_PAUSE_S, FAULT_PAUSE_S = (0.5, 3.0), (0.2, 1.5), (0.5, 3.5)
FAULT_MIN_S, FAULT_MAX_S = 0.5, 4.0


@dataclass(frozen=True, slots=True)
class PlannedJob:
    at: float  # seconds after the start of the round
    what: str  # a kind of the mill, or one of FEATURE_JOBS
    rows: int
    seed: int  # of its inputs
    by_http: bool


@dataclass(frozen=True, slots=True)
class PlannedOperation:
    at: float
    verb: str
    pick: float  # selects the job, from 0 to 1
    by_http: bool


@dataclass(frozen=True, slots=True)
class PlannedFault:
    at: float
    name: str
    seconds: float
    pick: float  # selects the target, from 0 to 1


@dataclass(frozen=True, slots=True)
class Round:
    number: int
    seconds: float
    jobs: list[PlannedJob]
    operations: list[PlannedOperation]
    faults: list[PlannedFault]


def plan_rounds(
    seed: int, seconds: float, round_s: float, *, jobs: Sequence[str], faults: Sequence[str]
) -> Iterator[Round]:
    """Yield the rounds of a run. The same arguments give the same rounds; a longer run begins with the same rounds."""
    rng = random.Random(seed)  # noqa: S311  not for cryptography
    deck: list[str] = []
    number = 0
    while number * round_s < seconds:
        number += 1
        yield Round(
            number,
            round_s,
            [_plan_job(rng, at, jobs) for at in _draw_times(rng, 0.0, round_s, JOB_PAUSE_S)],
            [_plan_operation(rng, at) for at in _draw_times(rng, 1.0, round_s, OPERATION_PAUSE_S)],
            [_plan_fault(rng, at, faults, deck) for at in _draw_times(rng, 1.0, round_s, FAULT_PAUSE_S)]
            if faults
            else [],
        )


def pick_one(candidates: Sequence[T], pick: float) -> T:
    """Return the candidate that a number from 0 to 1 selects."""
    return candidates[min(int(pick * len(candidates)), len(candidates) - 1)]


def _draw_times(rng: random.Random, start: float, end: float, pause: tuple[float, float]) -> list[float]:
    times, at = [], start
    while at < end:
        times.append(round(at, 2))
        at += rng.uniform(*pause)
    return times


def _plan_job(rng: random.Random, at: float, jobs: Sequence[str]) -> PlannedJob:
    [what] = rng.choices(jobs, [JOB_SHAPES[name][0] for name in jobs])
    _, fewest, most = JOB_SHAPES[what]
    return PlannedJob(at, what, rng.randint(fewest, most), rng.getrandbits(32), rng.random() < 0.5)  # noqa: PLR2004


def _plan_operation(rng: random.Random, at: float) -> PlannedOperation:
    [verb] = rng.choices(list(OPERATION_WEIGHTS), list(OPERATION_WEIGHTS.values()))
    return PlannedOperation(at, verb, rng.random(), rng.random() < 0.5)  # noqa: PLR2004


def _plan_fault(rng: random.Random, at: float, faults: Sequence[str], deck: list[str]) -> PlannedFault:
    """Draw from a shuffled deck, so that every class of faults occurs before one occurs again."""
    if not deck:
        deck += rng.sample(list(faults), len(faults))
    return PlannedFault(at, deck.pop(), round(rng.uniform(FAULT_MIN_S, FAULT_MAX_S), 2), rng.random())
