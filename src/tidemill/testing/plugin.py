"""pytest fixtures, available as soon as Tidemill is installed."""

from collections.abc import Iterator

import pytest

from tidemill.testing.throwaway_postgres import ThrowawayServer


@pytest.fixture(scope="session")
def tidemill_server() -> Iterator[ThrowawayServer]:
    """A PostgreSQL server for the whole test run, without durability."""
    with ThrowawayServer() as server:
        yield server


@pytest.fixture
def tidemill_database(tidemill_server: ThrowawayServer) -> Iterator[str]:
    """The URL of a fresh database with Tidemill's schema, dropped after the test."""
    url = tidemill_server.create_database()
    yield url
    tidemill_server.drop_database(url)
