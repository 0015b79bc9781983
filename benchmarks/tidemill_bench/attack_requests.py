"""Attacks by requests: hostile files, slow sources, rows that hurt the database, long time slices, exhausted quotas."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tidemill_bench.hostile_files import HOSTILE_FILES
from tidemill_bench.http_client import RawHttpClient
from tidemill_bench.kinds import PARKED_KIND, SLOW_KIND

TRAP_RESOURCE = "traps"
STREAM_RESOURCE = "streamed"
OCTETS = "application/octet-stream"
CONCURRENT_SLOW_PREVIEWS = 12
CONCURRENT_WIDE_PREVIEWS = 4
CONCURRENT_KICKOFFS = 5
KICKOFF_MS = 30_000
KICKOFF_ITEMS = 20_000  # each sleeps for a second
TRAP_ROWS, TRAP_AT = 200, 100
QUOTA_JOB_ITEMS = 10


@dataclass
class Attacker:
    """A user who attacks a server, and the responses so far by status."""

    address: tuple[str, int]
    key: str
    local_address: str  # another address than that of the measured user
    slow_port: int  # for the server that sends a byte a second
    files: dict[str, bytes] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)

    async def send(self, path: str, body: bytes, media_type: str = OCTETS) -> Any:
        """Send a request on a new connection; return the JSON of a successful response, else None."""
        try:
            async with RawHttpClient(self.address, self.key, local_address=self.local_address) as client:
                response = await client.send(path, media_type, len(body), [body])
        except (OSError, EOFError, TimeoutError) as error:
            self.statuses[type(error).__name__] += 1
            return None
        self.statuses[str(response.status)] += 1
        return response.checked_json if response.status < 400 else None  # noqa: PLR2004  the first error status

    async def send_json(self, path: str, text: str) -> Any:
        return await self.send(path, text.encode(), "application/json")

    async def send_file(self, name: str, path: str) -> None:
        """Send a hostile file. It is built once, before the first request."""
        file_name, make = HOSTILE_FILES[name]
        if name not in self.files:
            self.files[name] = make()
        await self.send(f"{path}?resource={TRAP_RESOURCE}&filename={file_name}", self.files[name])


async def repeat(seconds: float, action: Callable[[], Awaitable[object]]) -> None:
    """Repeat an action, one at a time, at most once in this number of seconds. The caller cancels it."""
    while True:
        pause = asyncio.create_task(asyncio.sleep(seconds))
        await action()
        await pause


async def repeat_concurrently(count: int, seconds: float, action: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(repeat(seconds, action))


@contextlib.asynccontextmanager
async def serve_slowly(port: int) -> AsyncIterator[str]:
    """Run a server that sends a byte a second; yield the URL of a CSV file."""

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError), contextlib.closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: 1000000\r\n\r\n")
            while not writer.is_closing():
                writer.write(b"n")
                await writer.drain()
                await asyncio.sleep(1)

    async with await asyncio.start_server(trickle, "127.0.0.1", port):
        yield f"http://127.0.0.1:{port}/slow.csv"


async def import_slow_urls(me: Attacker) -> None:
    async with serve_slowly(me.slow_port) as url:
        body = f'{{"resource": "{TRAP_RESOURCE}", "source": {{"url": "{url}"}}}}'
        await repeat(1, lambda: me.send_json("/v1/imports", body))


async def preview_slow_urls(me: Attacker) -> None:
    async with serve_slowly(me.slow_port) as url:
        body = f'{{"resource": "{TRAP_RESOURCE}", "source": {{"url": "{url}"}}}}'
        await repeat_concurrently(CONCURRENT_SLOW_PREVIEWS, 0.5, lambda: me.send_json("/v1/imports/preview", body))


async def preview_wide_files(me: Attacker) -> None:
    await repeat_concurrently(CONCURRENT_WIDE_PREVIEWS, 1, lambda: me.send_file("wide_csv", "/v1/imports/preview"))


def preview_and_import(name: str) -> Callable[[Attacker], Awaitable[None]]:
    """Return an attack that alternates previews and imports of a hostile file."""

    async def attack(me: Attacker) -> None:
        async def send_twice() -> None:
            for path in ("/v1/imports/preview", "/v1/imports"):
                await me.send_file(name, path)

        await repeat(2, send_twice)

    return attack


def import_trap(action: str) -> Callable[[Attacker], Awaitable[None]]:
    """Return an attack that imports files with a row for which the table's trigger runs an action."""
    rows = "".join(f"{n},{action if n == TRAP_AT else 'none'}\n" for n in range(TRAP_ROWS))
    body = f"n,action\n{rows}".encode()

    async def attack(me: Attacker) -> None:
        path = f"/v1/imports?resource={TRAP_RESOURCE}&filename=trap.csv"
        await repeat(2, lambda: me.send(path, body, "text/csv"))

    return attack


async def request_long_slices(me: Attacker) -> None:
    items = ", ".join(["1"] * KICKOFF_ITEMS)
    job = await me.send_json("/v1/jobs", f'{{"kind": "{SLOW_KIND}", "inputs": [{items}]}}')
    if job is not None:
        path = f"/v1/jobs/{job['id']}/kickoff?durationMs={KICKOFF_MS}"
        await repeat_concurrently(CONCURRENT_KICKOFFS, 0.5, lambda: me.send(path, b""))


async def exhaust_quota(me: Attacker) -> None:
    """Submit jobs that no worker runs, ten a second, also after the quota of open jobs is reached."""
    body = f'{{"kind": "{PARKED_KIND}", "inputs": {list(range(QUOTA_JOB_ITEMS))}}}'
    await repeat(0.1, lambda: me.send_json("/v1/jobs", body))
