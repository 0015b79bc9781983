"""Fixtures of the export tests."""

import pytest

from exports.scenes import Scene
from tidemill import Mill
from tidemill.config import Settings
from tidemill.store.database import Database


@pytest.fixture
def scene(db: Database, settings: Settings) -> Scene:
    return Scene(db, settings, Mill(settings))
