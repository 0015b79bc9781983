"""The setting TIDEMILL_FAILPOINTS, and the actions of failpoints."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from support import rows
from tidemill import failpoints
from tidemill.config import load_settings
from tidemill.core.errors import InvalidSettings
from tidemill.failpoints import Action, FailpointError, act_if_armed, arm_failpoints, failpoint, parse_failpoints
from tidemill.store import database
from tidemill.store.database import Connection, Database

NAME, OTHER = "flush.after_fence", "flush.before_commit"


@pytest.fixture(autouse=True)
def disarm_after_test(tmp_path: Path) -> Iterator[None]:
    yield
    arm_failpoints("", tmp_path)


def test_parse_failpoints_returns_action_and_first_call() -> None:
    assert parse_failpoints(f"{NAME}=kill, {OTHER}=lose-commit@3,") == {
        NAME: (Action.KILL, 1),
        OTHER: (Action.LOSE_COMMIT, 3),
    }


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("flush.after_fense=kill", 'has the unknown failpoint "flush.after_fense"'),
        (f"{NAME}=explode", f'has the unknown action "explode" in "{NAME}=explode"'),
        (NAME, 'has the unknown action ""'),
        (f"{NAME}=kill@0x", 'has the invalid call number "0x"'),
        (f"{NAME}=kill@0", 'has the invalid call number "0"'),
        (f"{NAME}=kill@", 'has the invalid call number ""'),
        (f"{NAME}=kill,{NAME}=stop", f'has the failpoint "{NAME}" twice'),
    ],
)
def test_settings_are_rejected_when_failpoints_are_malformed(
    text: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_FAILPOINTS", text)
    with pytest.raises(InvalidSettings, match="TIDEMILL_FAILPOINTS: has ") as raised:
        load_settings()
    assert mistake in str(raised.value)
    assert failpoints._armed is None


def test_failpoint_does_nothing_when_unarmed() -> None:
    assert failpoints._armed is None
    failpoint(NAME)


def test_failpoint_acts_once_when_called_often_and_again_without_its_marker(tmp_path: Path) -> None:
    arm_failpoints(f"{NAME}=raise@2", tmp_path)
    marker = tmp_path / "failpoints" / NAME
    act_if_armed(NAME)
    assert not marker.exists()
    with pytest.raises(FailpointError, match=NAME):
        act_if_armed(NAME)
    assert marker.read_text() == f"{os.getpid()}\n"
    act_if_armed(NAME)
    act_if_armed(OTHER)
    marker.unlink()
    with pytest.raises(FailpointError):
        act_if_armed(NAME)


@pytest.mark.parametrize(("action", "number"), [("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)])
def test_failpoint_signals_its_own_process(action: str, number: int, tmp_path: Path) -> None:
    code = f"from tidemill import config, failpoints; config.load_settings(); failpoints.failpoint({NAME!r})"
    variables = {"TIDEMILL_FAILPOINTS": f"{NAME}={action}", "TIDEMILL_HOME": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | variables)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    process.returncode = 0  # waited for here
    if number == signal.SIGSTOP:
        assert os.WSTOPSIG(status) == number
        os.kill(process.pid, signal.SIGCONT)
        _, status = os.waitpid(process.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    else:
        assert os.waitstatus_to_exitcode(status) == -number


async def test_disconnect_breaks_open_connections_when_transaction_runs(tidemill_database: str, tmp_path: Path) -> None:
    arm_failpoints(f"{NAME}=disconnect", tmp_path)
    async with Database(tidemill_database, size=2) as db:
        async with db.connection() as conn:
            act_if_armed(NAME)
            with pytest.raises(psycopg.OperationalError):
                await conn.execute("SELECT 1")
        assert await rows(db, "SELECT 1") == [(1,)]


async def test_lose_commit_reports_broken_connection_when_commit_was_executed(
    tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "is_commit_lost", failpoints.take_lost_commit)
    arm_failpoints(f"{NAME}=lose-commit", tmp_path)
    calls = 0

    async def add_row(conn: Connection) -> None:
        nonlocal calls
        calls += 1
        await conn.execute("CREATE TABLE IF NOT EXISTS public.ledger (call int)")
        await conn.execute("INSERT INTO public.ledger VALUES (%s)", (calls,))
        act_if_armed(NAME)

    async with Database(tidemill_database, size=2) as db:
        await db.run(add_row)  # retries after the lost answer
        assert await rows(db, "SELECT call FROM public.ledger ORDER BY 1") == [(1,), (2,)]
