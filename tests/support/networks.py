"""Hosts of their own, as far as a machine can play them: network namespaces, and a way to the database over TCP.

This machine's ends of their links are in a namespace, too, where the database listens: a link that comes or goes in the
machine's own network makes every browser on it drop what it is loading.
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
    """One network namespace; ``address`` is that of the database, as seen from there, in the namespace ``hub``."""

    name: str
    hub: str
    link: str
    address: str

    @property
    def inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Nothing arrives and nobody is told: a black hole."""
        _ip("-n", self.hub, "link", "set", self.link, "down")

    def mend(self) -> None:
        _ip("-n", self.hub, "link", "set", self.link, "up")


@contextmanager
def hosts(n: int) -> Iterator[list[Host]]:
    """So many of them; a skip that is said loudly where that is not allowed."""
    made: list[Host] = []
    hub = f"tidemill-{os.getpid()}-hub"
    try:
        require("ip")
        if os.geteuid() != 0:
            raise PermissionError("not root")
        _ip("netns", "add", hub)
        for number in range(n):
            made.append(_make(number, hub))  # noqa: PERF401  what was made before one fails is removed
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
    """In that namespace: a socket belongs to the one of the thread that made it, so this is for a thread to do."""
    with Path(f"/var/run/netns/{hub}").open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    return socket.create_server((address, 0))


def _in_a_thread_of_its_own(work: Callable[[], socket.socket]) -> socket.socket:
    """One that ends with it: nobody else may be given a thread that is somewhere else."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


@asynccontextmanager
async def database_over_tcp(url: str, places: list[Host]) -> AsyncIterator[list[str]]:
    """The database's URL as each of these hosts reaches it: its server has a socket in a folder only."""
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
        finally:  # also when the test ends in the midst of it
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
