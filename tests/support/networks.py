"""Network namespaces that simulate hosts, and a TCP proxy through which they reach the database.

The links end in another namespace, the hub, where the proxy listens. They do not end in the machine's own network,
because browsers abort their requests when a link appears or disappears there.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import pytest

from support import require

CLONE_NEWNET = 0x40000000


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@dataclass(frozen=True)
class Host:
    """A network namespace. ``address`` is the address in the namespace ``hub`` at which it reaches the database."""

    name: str
    hub: str
    link: str
    address: str

    @property
    def inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Drop all packets silently, so that neither side gets an error."""
        _ip("-n", self.hub, "link", "set", self.link, "down")

    def mend(self) -> None:
        _ip("-n", self.hub, "link", "set", self.link, "up")


@contextmanager
def hosts(n: int) -> Iterator[list[Host]]:
    """Create n hosts. Skip the test if this machine does not permit network namespaces."""
    made: list[Host] = []
    hub = f"tidemill-{os.getpid()}-hub"
    try:
        require("ip")
        if os.geteuid() != 0:
            raise PermissionError("not root")
        _ip("netns", "add", hub)
        for number in range(n):
            made.append(_make(number, hub))  # noqa: PERF401  if one fails, those before it are removed
        yield made
    except (OSError, subprocess.CalledProcessError) as error:
        if len(made) == n:
            raise
        pytest.skip(f"NOT RUN: no network namespaces on this machine, which needs root: {error}")
    finally:
        for name in (*(host.name for host in made), hub):
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "del", name)


def _make(number: int, hub: str) -> Host:
    pid = os.getpid()
    name, link, far = f"tidemill-{pid}-{number}", f"tm{pid}n{number}"[-15:], f"tf{pid}n{number}"[-15:]
    net = f"10.{210 + number}.{pid % 250}"
    _ip("netns", "add", name)
    _ip("-n", hub, "link", "add", link, "type", "veth", "peer", "name", far, "netns", name)
    _ip("-n", name, "link", "set", "lo", "up")
    for where, end, address in ((hub, link, f"{net}.1/24"), (name, far, f"{net}.2/24")):
        _ip("-n", where, "addr", "add", address, "dev", end)
        _ip("-n", where, "link", "set", end, "up")
    return Host(name, hub, link, f"{net}.1")


def _listening(hub: str, address: str) -> socket.socket:
    """Open a socket in the namespace ``hub``. This moves the calling thread there, so call it in a separate thread."""
    with Path(f"/var/run/netns/{hub}").open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    return socket.create_server((address, 0))


def _in_a_thread_of_its_own(work: Callable[[], socket.socket]) -> socket.socket:
    """Run ``work`` in a thread that ends afterwards, because the thread stays in the other namespace."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


@asynccontextmanager
async def database_over_tcp(url: str, places: list[Host]) -> AsyncIterator[list[str]]:
    """Yield the database's URL for each host. A proxy listens on TCP, because the server has a Unix socket only."""
    known = psycopg.conninfo.conninfo_to_dict(url)
    path = f"{known['host']}/.s.PGSQL.{known.get('port') or 5432}"

    passing: set[asyncio.Task[None]] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        passing.add(task)
        task.add_done_callback(passing.discard)
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(path)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:  # also if the test ends meanwhile
            writer.transport.abort()
            far_writer.transport.abort()

    listening = [_in_a_thread_of_its_own(partial(_listening, host.hub, host.address)) for host in places]
    servers = [await asyncio.start_server(pass_on, sock=sock) for sock in listening]
    names = {"user": str(known["user"]), "dbname": str(known["dbname"]), "sslmode": "disable"}
    ends = [sock.getsockname() for sock in listening]
    try:
        yield [psycopg.conninfo.make_conninfo(host=address, port=port, **names) for address, port in ends]
    finally:
        for server in servers:
            server.close()
        for task in [*passing]:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
