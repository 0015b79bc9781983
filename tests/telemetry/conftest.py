"""Fixtures that record events of this process and of real workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.recorded_events import Logged, Told
from tidemill.config import Settings
from tidemill.telemetry.events import subscribe


@pytest.fixture
def told() -> Iterator[Told]:
    heard = Told()
    leave = subscribe(heard.append)
    yield heard
    leave()


@pytest.fixture
def logged(settings: Settings, tmp_path: Path) -> Iterator[Logged]:
    started = Logged(settings, tmp_path)
    yield started
    started.end()
