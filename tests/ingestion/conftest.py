"""What tests of watches ask for."""

from pathlib import Path

import pytest

from ingestion.scenes import Scene, make_scene
from tidemill.config import Settings
from tidemill.store.database import Database


@pytest.fixture
async def scene(db: Database, settings: Settings, tmp_path: Path) -> Scene:
    return await make_scene(db, settings, tmp_path)
