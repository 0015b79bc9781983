"""A site with tables for imports and exports, and a worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from support import rows
from tidemill.testing.throwaway_postgres import ThrowawayServer
from web.conftest import serving, settings_in
from web.site import Site

SLOW = 60_000
TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.people (
    email text PRIMARY KEY, name text NOT NULL, age integer CHECK (age >= 0), role text,
    at timestamptz NOT NULL DEFAULT now());
CREATE TABLE shop.prices (index_key text, effective_date integer, member text, price numeric);
CREATE TABLE shop.settings AS SELECT 0 AS divisor;
INSERT INTO shop.prices VALUES
    ('ABC', 20240202, 'X', 1.5), ('ABC', 20240202, 'Y', 2.5), ('DEF', 20240202, 'Z', 3), ('BAD', 20240202, 'Q', 1);
"""
DECLARED = """
[resources.people]
table = "shop.people"
key = ["email"]
read = ["user", "admin"]
write = ["user", "admin"]
[resources.people.fields.email]
format = "email"
normalize = ["trim", "lower"]
[resources.people.fields.role]
enum = ["admin", "editor", "reader"]
[resources.prices]
table = "shop.prices"
read = ["user", "admin"]
write = []
[datasets.prices]
query = '''
SELECT member, price / CASE %(index_key)s WHEN 'BAD' THEN divisor ELSE 1 END AS price FROM shop.prices, shop.settings
WHERE effective_date = %(effective_date)s AND index_key = %(index_key)s ORDER BY member
'''
fields = { index_key = "text", effective_date = "yyyymmdd" }
date_field = "effective_date"
read = ["user", "admin"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tidemill_server: ThrowawayServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A service with declared tables, and a worker."""
    async with open_shop_site(tidemill_server, tmp_path_factory) as opened:
        yield opened


@asynccontextmanager
async def open_shop_site(
    tidemill_server: ThrowawayServer, tmp_path_factory: pytest.TempPathFactory, more: str = ""
) -> AsyncIterator[Site]:
    """Start the service with ``more`` declarations."""
    folder = tmp_path_factory.mktemp("shop")
    declared = written(folder, "tidemill.toml", DECLARED + more)
    url = await asyncio.to_thread(tidemill_server.create_database)
    changes = {"config": declared, "distribution_backoff_ms": 10, "max_file_size_mb": 8}
    async with serving(settings_in(url, folder).model_copy(update=changes)) as started:
        await rows(started.db, TABLES)
        started.workers.app("")
        started.workers.start()
        yield started
        started.workers.end()
    await asyncio.to_thread(tidemill_server.drop_database, url)


def people_csv(n: int, *, bad: int = 0, prefix: str = "p") -> str:
    """Return a CSV file with ``n`` people, of which ``bad``, spread evenly, have one of three errors."""
    wrong = {index * (n // bad): index % 3 for index in range(bad)} if bad else {}
    lines = ["E-Mail;Full name;age;role;Remarks"]
    for row in range(n):
        fault = wrong.get(row)
        email = f"{prefix}{row}" if fault == 0 else f"{prefix}{row}@example.org"
        age = "old" if fault == 1 else str(20 + row % 60)
        role = "king" if fault == 2 else "reader"
        lines.append(f"{email};Person {row};{age};{role};none")
    return "\n".join(lines) + "\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path
