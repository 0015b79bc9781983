"""Hosts of their own, as far as a machine can play them: network namespaces, and a way to the database over TCP."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import psycopg
import pytest


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass(frozen=True)
class Host:
    """One network namespace; ``address`` is this machine's, as seen from there."""

    name: str
    link: str
    address: str

    @property
    def inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Nothing arrives and nobody is told: a black hole."""
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        _ip("link", "set", self.link, "up")


@contextmanager
def hosts(n: int) -> Iterator[list[Host]]:
    """So many of them; a skip that is said loudly where that is not allowed."""
    made: list[Host] = []
    try:
        for number in range(n):
            made.append(_make(number))  # noqa: PERF401  what was made before one fails is removed
        yield made
    except (OSError, subprocess.CalledProcessError) as error:
        if len(made) == n:
            raise
        pytest.skip(f"NOT RUN: no network namespaces on this machine, which needs root and `ip`: {error}")
    finally:
        for host in made:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "del", host.name)


def _make(number: int) -> Host:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise PermissionError("not root, or no `ip`")
    pid = os.getpid()
    name, link, far = f"tidemill-{pid}-{number}", f"tm{pid}n{number}"[-15:], f"tf{pid}n{number}"[-15:]
    net = f"10.{210 + number}.{pid % 250}"
    _ip("netns", "add", name)
    _ip("link", "add", link, "type", "veth", "peer", "name", far, "netns", name)
    _ip("addr", "add", f"{net}.1/24", "dev", link)
    _ip("link", "set", link, "up")
    for words in (("addr", "add", f"{net}.2/24", "dev", far), ("link", "set", far, "up"), ("link", "set", "lo", "up")):
        _ip("-n", name, *words)
    return Host(name, link, f"{net}.1")


@asynccontextmanager
async def database_over_tcp(url: str, addresses: list[str]) -> AsyncIterator[list[str]]:
    """The database's URL by each of these addresses: its server has a socket in a folder only."""
    known = psycopg.conninfo.conninfo_to_dict(url)
    socket = f"{known['host']}/.s.PGSQL.{known.get('port') or 5432}"

    passing: set[asyncio.Task[None]] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        passing.add(task)
        task.add_done_callback(passing.discard)
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(socket)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:  # also when the test ends in the midst of it
            writer.transport.abort()
            far_writer.transport.abort()

    servers = [await asyncio.start_server(pass_on, address, 0) for address in addresses]
    names = {"user": str(known["user"]), "dbname": str(known["dbname"]), "sslmode": "disable"}
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    try:
        places = zip(addresses, ports, strict=True)
        yield [psycopg.conninfo.make_conninfo(host=address, port=port, **names) for address, port in places]
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
