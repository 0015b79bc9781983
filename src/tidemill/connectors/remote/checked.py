"""Async connections that lead only to addresses that were checked."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address

import httpcore2

from tidemill.domain.addresses import IPAddress, literal
from tidemill.domain.services.calls import CallFailed
from tidemill.domain.services.service import Reach

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
ADDRESSES_TRIED = 4
CONNECT_S = 10.0


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, by the system's own resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves, checks and connects in one step: whatever the resolver says later cannot matter."""

    def __init__(self, reach: Reach, resolve_: Resolve = resolve) -> None:
        self._reach = reach
        self._resolve = resolve_
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  as httpcore2 has it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        reason = self._reach.refusal(host, addresses, port)
        if reason:
            raise CallFailed("address_refused", f"{host}: {reason}")
        failure: Exception = httpcore2.ConnectError("it has no address")
        for address in addresses[:ADDRESSES_TRIED]:
            try:
                seconds = timeout or CONNECT_S
                return await self._backend.connect_tcp(str(address), port, seconds, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _addresses(self, host: str, port: int) -> list[IPAddress]:
        known = literal(host)
        if known is not None:
            return [known]
        try:
            async with asyncio.timeout(CONNECT_S):
                found = await self._resolve(host, port)
        except TimeoutError:
            raise httpcore2.ConnectTimeout("its name was not resolved in time") from None
        except UnicodeError:
            raise CallFailed("address_refused", f"{host[:100]!r} is not the name of a host") from None
        except OSError as error:
            raise httpcore2.ConnectError("its name could not be resolved") from error
        return list(dict.fromkeys(ip_address(text) for text in found))
