"""Fixtures for tests of watches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.loopback_server import Server
from tidemill.config import Settings
from tidemill.store.database import Database
from watches.scenes import Scene, make_scene
from watches.website import Web


@pytest.fixture
async def scene(db: Database, settings: Settings, tmp_path: Path) -> Scene:
    return await make_scene(db, settings, tmp_path)


@pytest.fixture
def web() -> Iterator[tuple[Web, Server]]:
    site = Web()
    with Server(site.answer) as server:
        yield site, server
