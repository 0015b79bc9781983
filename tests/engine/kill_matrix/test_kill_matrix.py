"""Every failpoint with every action: the job ends, no row is lost, no effect is doubled, and the processes live."""

import ast
import asyncio
from collections import Counter
from pathlib import Path

import pytest

import tidemill
from engine.kill_matrix.matrix import NO_COMMIT_FOLLOWS, POINTS, Case, list_cases
from engine.kill_matrix.stage import FAST, Stage
from support import Workers
from tidemill.config import Settings
from tidemill.failpoints import FAILPOINTS, Action
from tidemill.store.database import Database

CASES = list(list_cases())
LATE_HIT_TIMEOUT_S = 20.0
PARAMETERS = [pytest.param(case, id=str(case), marks=[pytest.mark.full] if case.is_full else []) for case in CASES]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update=FAST)


@pytest.mark.parametrize("case", PARAMETERS)
async def test_scenario_ends_soundly_when_failpoint_acts(
    case: Case, db: Database, settings: Settings, workers: Workers
) -> None:
    stage = Stage(db, settings, workers, case.point, case.action)
    recovering = asyncio.create_task(stage.recover())
    try:
        await case.scenario(stage)
        await asyncio.wait_for(recovering, LATE_HIT_TIMEOUT_S)
        await stage.check_end()
    finally:
        recovering.cancel()
        await asyncio.gather(recovering, return_exceptions=True)
        stage.end()


def _list_called_failpoints() -> Counter[str]:
    called: Counter[str] = Counter()
    for path in Path(tidemill.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failpoint":
                (argument,) = node.args
                assert isinstance(argument, ast.Constant), f"{path}: the name of a failpoint is not a literal"
                called[str(argument.value)] += 1
    return called


def test_every_listed_failpoint_is_called_once() -> None:
    assert _list_called_failpoints() == Counter(list(FAILPOINTS))


def test_every_failpoint_has_a_scenario() -> None:
    assert {point for points in POINTS.values() for point in points} == set(FAILPOINTS)
    assert set(NO_COMMIT_FOLLOWS) < set(FAILPOINTS)


def test_selection_covers_every_failpoint_and_every_action() -> None:
    selected = [case for case in CASES if not case.is_full]
    assert Counter(case.point for case in selected) == Counter(list(FAILPOINTS))
    assert {case.action for case in selected} == set(Action)
