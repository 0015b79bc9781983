"""Fixtures and settings of all tests."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support import Workers
from support.forks import WIDTH, fork_children
from support.hypothesis_profiles import register_profiles
from support.s3 import S3Server
from tidemill import Mill
from tidemill.app.feature_list import DISABLED_FEATURES_VARIABLE
from tidemill.config import Settings
from tidemill.store.database import Database

pytest_plugins = ["support.api", "support.command", "support.leftover_processes"]

# Without stored bytecode, each of the many processes of a run compiles every module.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# pytest-xdist sets a width of 80 columns. A command whose width differs from the forker's cannot be forked: it starts a
# new interpreter, which takes one second.
os.environ.update(WIDTH)
fork_children()
# A shell script ignores SIGINT in its background jobs. Processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
register_profiles()
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
    """Return settings for fast tests: leases of 2 s, polls every 50 ms, and claims that do not depend on the load."""
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
    """Start real worker processes, and kill those that still run after the test."""
    started = Workers(settings, tmp_path)
    yield started
    started.end()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return the S3 server that all tests share. A test that kills a server starts its own."""
    with S3Server(tmp_path_factory.mktemp("s3") / "data") as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return the shared S3 server, with its keys in the environment."""
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return s3_server
