"""The proxy of a run: it recognizes messages in any chunks, and loses exactly the answer of a COMMIT."""

import struct
from collections.abc import AsyncIterator

import psycopg
import pytest

from support import eventually
from tidemill.store.database import Database
from tidemill.torture.faults import LOOPBACK, Link, MessageScanner, is_commit, open_links
from tidemill.torture.processes import find_server_address


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


STARTUP = message(b"", struct.pack("!i", 196608) + b"user\0postgres\0\0")


@pytest.mark.parametrize("chunk", [1, 3, 7, 10_000])
def test_scanner_finds_commits_in_chunks_of_any_size(chunk: int) -> None:
    stream = STARTUP + b"".join(
        [
            message(b"Q", b"BEGIN; SET LOCAL statement_timeout = 1\0"),
            message(b"Q", b"SELECT 'COMMIT'" + b" " * 500 + b"\0"),
            message(b"d", b"Q\0\0\0\x0bCOMMIT\0" * 100),  # COPY data that looks like a message
            message(b"Q", b" commit; \0"),
            message(b"P", b"name\0COMMIT\0\0\0"),
            message(b"S", b""),
        ]
    )
    scanner = MessageScanner(has_startup=True)
    found = [one for at in range(0, len(stream), chunk) for one in scanner.feed(stream[at : at + chunk])]
    assert [kind for kind, _ in found] == [b"", b"Q", b"Q", b"d", b"Q", b"P", b"S"]
    assert [is_commit(*one) for one in found] == [False, False, False, False, True, True, False]


@pytest.fixture
async def link(db: Database) -> AsyncIterator[Link]:
    address = await find_server_address(db)
    async with open_links(["test"], address.host, address.port, is_readable=True) as links:
        yield links["test"]


async def connect(db: Database, link: Link) -> psycopg.AsyncConnection[object]:
    url = (await find_server_address(db)).build_proxied_url(LOOPBACK, link.listening_port)
    return await psycopg.AsyncConnection.connect(url)


async def test_lost_commit_answer_leaves_transaction_committed(db: Database, link: Link) -> None:
    async with await connect(db, link) as conn:
        await conn.execute("CREATE TABLE public.seen (n int)")
        await conn.commit()
        await conn.execute("INSERT INTO public.seen VALUES (1)")
        link.commits_to_swallow = 1
        with pytest.raises(psycopg.OperationalError):
            await conn.commit()
    assert (link.swallowed_commits, link.commits_to_swallow) == (1, 0)
    async with await connect(db, link) as conn:
        assert await (await conn.execute("SELECT n FROM public.seen")).fetchall() == [(1,)]


async def test_connections_work_again_after_partition(db: Database, link: Link) -> None:
    async with await connect(db, link) as conn:
        link.is_partitioned = True
        query = conn.execute("SELECT 1")
        link.heal()
        assert await (await query).fetchall() == [(1,)]
        assert [one.backend_pid for one in link.connections] == [conn.info.backend_pid]


async def test_dropped_connection_fails_and_next_one_works(db: Database, link: Link) -> None:
    async with await connect(db, link) as conn:
        assert link.drop_connections() == 1
        with pytest.raises(psycopg.OperationalError):
            await conn.execute("SELECT 1")

    async def are_forgotten() -> bool:
        return not link.connections

    await eventually(are_forgotten)
    async with await connect(db, link) as conn:
        assert await (await conn.execute("SELECT 1")).fetchall() == [(1,)]
