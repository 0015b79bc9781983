"""What every test may ask for."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from support import Workers
from support.forks import WIDTH, fork_children
from support.s3 import S3Server
from tidemill import Mill
from tidemill.app.feature_list import DISABLED_FEATURES_VARIABLE
from tidemill.config import Settings
from tidemill.store.database import Database

pytest_plugins = ["support.api", "support.command", "support.leftover_processes"]

# A machine that keeps no bytecode makes each of the many processes of a run compile everything anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# xdist says 80 columns to its processes: a command that is told of another width than the process it forks from had is
# started anew, which takes a second each time.
os.environ.update(WIDTH)
fork_children()
# A script that runs the tests in the background has SIGINT ignored, and so would all processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long an example takes says how busy the machine is, and nothing of what the example is about.
hypothesis_settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
hypothesis_settings.load_profile("patient")
SERVICE_FIXTURES = frozenset({"browser", "s3_server", "tidemill_server"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as fast each test that needs no database, no object store and no browser.

    Skip tests of two features together if one of them is disabled.
    """
    disabled = os.environ.get(DISABLED_FEATURES_VARIABLE, "").split(",")
    for item in items:
        if any(mark.args[0] in disabled for mark in item.iter_markers("needs_feature")):
            item.add_marker(pytest.mark.skip("its feature is disabled"))
        if SERVICE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("fast")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the developer's settings. Only the disabled features stay: scripts/test-without-feature sets them."""
    for name in list(os.environ):
        is_setting = name.startswith(("TIDEMILL_", "AWS_")) or name == "DATABASE_URL"
        if is_setting and name != DISABLED_FEATURES_VARIABLE:
            monkeypatch.delenv(name)


@pytest.fixture
def settings(tidemill_database: str, tmp_path: Path) -> Settings:
    """Leases of 2 s instead of 30, polls of 50 ms instead of 1 s; a busy machine claims as much as an idle one."""
    return Settings(
        database_url=tidemill_database,
        home=tmp_path,
        lock_floor_ms=2_000,
        lock_cap_ms=10_000,
        db_timeout_ms=1_500,
        poll_ms=50,
        stop_grace_ms=3_000,
        flush_interval_ms=200,
        cpu_high_percent=1_000_000,
        memory_high_percent=100,
    )


@pytest.fixture
async def db(tidemill_database: str) -> AsyncIterator[Database]:
    async with Database(tidemill_database, size=8) as database:
        yield database


@pytest.fixture
def mill(settings: Settings) -> Mill:
    return Mill(settings)


@pytest.fixture
def workers(settings: Settings, tmp_path: Path) -> Iterator[Workers]:
    """Starts real worker processes; ends those that are left."""
    started = Workers(settings, tmp_path)
    yield started
    started.end()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """For everybody: whoever wants to kill one starts his own."""
    with S3Server(tmp_path_factory.mktemp("s3") / "data") as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A server that runs, and its keys in the environment."""
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return s3_server
