"""Reconciliation services on the loopback interface: csv-reconcile, and a server with scripted responses."""

import asyncio
import contextlib
import csv
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

READY_S = 30.0


class CsvReconcile:
    """A csv-reconcile server, an independent implementation, with a CSV file of ids and names."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self.ids = {name: f"E{number}" for number, name in enumerate(names)}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/reconcile"

    def __enter__(self) -> Self:
        self._log = (self._folder / "log").open("ab")
        with (self._folder / "names.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["id", "name"], *([id_, name] for name, id_ in self.ids.items())])
        (self._folder / "settings.py").write_text(
            f"SERVER_NAME = '127.0.0.1:{self.port}'\nCSVENCODING = 'utf-8'\nLOGLEVEL = 'ERROR'\n"
        )
        self._run("init", "--config", "settings.py", "names.csv", "id", "name").wait(READY_S)
        self._server = self._run("serve")
        self._await()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait(READY_S)
        self._log.close()

    def _run(self, *argv: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "csv_reconcile", *argv]
        return subprocess.Popen(command, cwd=self._folder, stdout=self._log, stderr=self._log, env=os.environ)

    def _await(self) -> None:
        for _ in range(int(READY_S / 0.1)):
            assert self._server.poll() is None, (self._folder / "log").read_text()
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(self.url, timeout=5).close()
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(0.1)
        raise AssertionError("csv-reconcile does not answer")


@dataclass
class Request:
    """A request that the server received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def queries(self) -> dict[str, dict[str, Any]]:
        """The queries by id, as version 0.2 of the protocol sends them."""
        found: dict[str, dict[str, Any]] = json.loads(parse_qs(self.body.decode())["queries"][0])
        return found


@dataclass
class Reply:
    """A response after ``delay`` s. ``raw`` replaces the complete response; the connection is then closed."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    delay: float = 0.0


Answer = Callable[[Request], Reply | Awaitable[Reply]]


def told(value: Any, status: int = 200, **headers: str) -> Reply:
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json", **names})


def echo(request: Request) -> Reply:
    """Match each query with a candidate of the same name."""
    return told({id_: {"result": [named(query["query"])]} for id_, query in request.queries.items()})


def named(name: str, score: Any = 100.0, *, match: bool = True, **more: Any) -> dict[str, Any]:
    return {"id": f"id of {name}", "name": name, "score": score, "match": match, **more}


class Scripted:
    """An HTTP server in the event loop of the test. ``answer`` returns its responses."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.port = 0
        self.at_once = 0
        self.most_at_once = 0
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def rows_asked(self) -> list[int]:
        return [len(request.queries) for request in self.requests]

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        self._open.discard(writer)
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(method, path, headers, body)
        self.requests.append(request)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            reply = self.answer(request)
            reply = reply if isinstance(reply, Reply) else await reply
            await asyncio.sleep(reply.delay)
        finally:
            self.at_once -= 1
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        lines = [f"HTTP/1.1 {reply.status} Scripted", f"Content-Length: {len(reply.body)}"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + reply.body)
        await writer.drain()
        return True

    def hang_up(self) -> None:
        for writer in self._open:
            writer.close()


@contextlib.asynccontextmanager
async def scripted(answer: Answer) -> AsyncIterator[Scripted]:
    service = Scripted(answer)
    server = await asyncio.start_server(service.connected, "127.0.0.1", 0, limit=1 << 24)
    service.port = server.sockets[0].getsockname()[1]
    yield service
    server.close()
    service.hang_up()
    await asyncio.sleep(0)
