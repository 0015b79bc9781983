"""Opens the configured database, or the embedded server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemill.config import Settings
from tidemill.store.database import Database
from tidemill.store.embedded_postgres import start_embedded_server
from tidemill.store.migrate import check_schema


def ensure_database_url(settings: Settings) -> str:
    """Return the configured URL, or start the embedded server and return its URL."""
    return settings.database_url or start_embedded_server(settings.home)


async def make_database(settings: Settings, *, size: int | None = None, patience: float | None = None) -> Database:
    """Return the configured database, not open yet. Start the embedded server if none is configured."""
    url = await asyncio.to_thread(ensure_database_url, settings)
    return Database(
        url,
        size=size or settings.db_max_conns,
        idle=settings.db_max_idle_conns,
        lifetime=settings.db_conn_max_lifetime,
        timeout=settings.db_timeout_ms / 1000,
        prepare=settings.db_prepare,
        retry_for_s=patience,
        slow_ms=settings.slow_query_ms,
    )


@asynccontextmanager
async def open_database(
    settings: Settings, *, size: int | None = None, check: bool = True, patience: float | None = None
) -> AsyncIterator[Database]:
    async with await make_database(settings, size=size, patience=patience) as db:
        if check:
            await check_schema(db)
        yield db
