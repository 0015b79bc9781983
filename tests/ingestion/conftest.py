"""What tests of watches ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.servers import Server
from ingestion.scenes import Scene, make_scene
from ingestion.web import Web
from tidemill.config import Settings
from tidemill.store.database import Database


@pytest.fixture
async def scene(db: Database, settings: Settings, tmp_path: Path) -> Scene:
    return await make_scene(db, settings, tmp_path)


@pytest.fixture
def web() -> Iterator[tuple[Web, Server]]:
    site = Web()
    with Server(site.answer) as server:
        yield site, server
