"""Where to measure: on DATABASE_URL, or on a server of our own that is gone afterwards."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tidemill.app import open_database
from tidemill.config import Settings
from tidemill.store import bench
from tidemill.store.database import Database
from tidemill.store.migrate import migrate


@contextmanager
def place(settings: Settings) -> Iterator[Settings]:
    """Settings with a database to measure on, and a folder for files that is gone afterwards."""
    settings.home.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="bench-", dir=settings.home))
    folders = {"home": home, "blobs": str(home / "blobs")}
    try:
        if settings.database_url is not None:
            yield settings.model_copy(update=folders)
            return
        with bench.own_server(settings.home) as url:
            yield settings.model_copy(update=folders | {"database_url": url})
    finally:
        shutil.rmtree(home, ignore_errors=True)


@asynccontextmanager
async def opened(settings: Settings, *, is_own: bool) -> AsyncIterator[Database]:
    """That database, with the schema."""
    async with open_database(settings, check=not is_own) as db:
        if is_own:
            await migrate(db)
        yield db
