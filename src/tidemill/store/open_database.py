"""Opens the configured database, or the embedded server."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg.pq import Conninfo
from psycopg_pool import PoolTimeout

from tidemill.config import Settings
from tidemill.store.database import Database, translate_access_error
from tidemill.store.embedded_postgres import find_programs_folder, start_embedded_server
from tidemill.store.migrate import check_schema


def get_url_or_start_embedded_server(settings: Settings) -> str:
    """Return the configured URL, or start the embedded server and return its URL."""
    return settings.database_url or start_embedded_server(settings.home)


async def make_database(settings: Settings, *, size: int | None = None, patience: float | None = None) -> Database:
    """Return the configured database, not open yet. Start the embedded server if none is configured."""
    url = await asyncio.to_thread(get_url_or_start_embedded_server, settings)
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


def find_psql() -> str | None:
    """Return the path of psql: that of the system, or that of the embedded server."""
    found = shutil.which("psql")
    if found is not None:
        return found
    try:
        program = find_programs_folder() / "psql"
    except ImportError:
        return None
    return str(program) if program.is_file() else None


def build_psql_environment(url: str) -> dict[str, str]:
    """Return the variables with which psql connects to the URL. Other users cannot read them, unlike arguments."""
    options = Conninfo.parse(url.encode())
    return {one.envvar.decode(): one.val.decode() for one in options if one.envvar is not None and one.val is not None}


@asynccontextmanager
async def open_database(
    settings: Settings, *, size: int | None = None, check: bool = True, patience: float | None = None
) -> AsyncIterator[Database]:
    async with await make_database(settings, size=size, patience=patience) as db:
        try:
            if check:
                await check_schema(db)
            yield db
        except (psycopg.Error, PoolTimeout) as error:
            explained = translate_access_error(error)
            if explained is None:
                raise
            raise explained from error
