"""Fixtures of the distribution tests."""

import pytest

from distributions.scenes import TABLE, Scene
from support import rows
from tidemill.config import Settings
from tidemill.store.database import Database


@pytest.fixture
async def scene(db: Database, settings: Settings) -> Scene:
    await rows(db, TABLE)
    return Scene(db, settings)
