"""Fixtures for tests of match and enrich jobs."""

from collections.abc import AsyncIterator, Iterator

import pytest

from enrichment.scenes import Scene
from support.reconciliation_services import CsvReconcile, Scripted, echo, scripted
from tidemill.config import Settings
from tidemill.store.database import Database

NAMES = (
    *("Ada Lovelace", "Alan Turing", "Grace Hopper", "Edsger Dijkstra", "Barbara Liskov", "Donald Knuth"),
    *("Müller Maschinenbau GmbH", "Société Générale S.A.", "Łódź Trading Sp. z o.o.", "Acme Corporation"),
)


@pytest.fixture(scope="session")
def csv_reconcile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CsvReconcile]:
    with CsvReconcile(tmp_path_factory.mktemp("reconcile"), NAMES) as service:
        yield service


@pytest.fixture
def scene(db: Database, settings: Settings) -> Scene:
    return Scene(db, settings)


@pytest.fixture
async def service(scene: Scene) -> AsyncIterator[Scripted]:
    """A service with the name "names". Until the test scripts its responses, it finds every row."""
    async with scripted(echo) as running:
        scene.declare("names", running.url, timeout=2)
        yield running
