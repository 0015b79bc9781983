"""Opening a pool of connections that is interrupted."""

import asyncio

import pytest

from support import eventually, until
from tidemill.store.database import Database
from tidemill.torture.faults import LOOPBACK, Link
from tidemill.torture.processes import find_server_address


async def test_cancelled_open_leaves_no_tasks_of_the_pool(db: Database) -> None:
    address = await find_server_address(db)
    link, is_opening = Link("test", address.host, address.port, is_readable=True), asyncio.Event()
    accepted = 0

    async def accept_first_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the connection that checks the server. Those of the pool get no answer."""
        nonlocal accepted
        accepted += 1
        if accepted > 1:
            link.is_partitioned = True
            is_opening.set()
        await link.accept(reader, writer)

    server = await asyncio.start_server(accept_first_connection, LOOPBACK, 0)
    before = asyncio.all_tasks()
    url = address.build_proxied_url(LOOPBACK, server.sockets[0].getsockname()[1])
    opening = asyncio.create_task(Database(url).__aenter__())
    await until(is_opening)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await link.close()
    server.close()

    async def is_none_left() -> bool:
        return not any("AsyncConnectionPool" in str(task.get_coro()) for task in asyncio.all_tasks() - before)

    await eventually(is_none_left, 20.0)
