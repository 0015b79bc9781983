"""Decides which hosts a download may connect to: public addresses, and the hosts that are explicitly allowed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

WEB_PORTS = (80, 443)
NOT_PUBLIC_REASON = "the host is not on the public internet"
_PORT_MAX = 65_535
_ALLOWED_HOST_PATTERN = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_BRACKETED_HOST_PATTERN = re.compile(r"\[(?P<name>[^]]+)\](:(?P<port>[0-9]+))?")

# In addition to is_global of Python, which differs between releases and is not meant as a defense against attacks.
_BLOCKED_IPV4_NETWORKS = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, also used inside clouds
        "168.63.129.16",  # a public address, but internal to every Azure machine
        "192.0.0.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
_GLOBAL_UNICAST_IPV6_NETWORK = ip_network("2000::/3")  # the only range that IANA assigns to public hosts
_BLOCKED_IPV6_NETWORKS = [
    ip_network(text)
    for text in (
        "2001::/32",  # Teredo: tunnels to any IPv4 address
        "2001:db8::/32",
        "3fff::/20",
    )
]
_IPV4_MAPPED_NETWORK, _NAT64_NETWORK, _SIX_TO_FOUR_NETWORK = (
    ip_network("::ffff:0:0/96"),
    ip_network("64:ff9b::/96"),
    ip_network("2002::/16"),
)


def parse_ip_literal(host: str) -> IPAddress | None:
    """Return the IP address if the host is one, or None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_public_address(address: IPAddress) -> bool:
    """Return whether an address is on the public internet. An IPv6 address that embeds an IPv4 address counts as it."""
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in network for network in _BLOCKED_IPV4_NETWORKS)
    if address.scope_id is not None:
        return False
    inside = _extract_embedded_ipv4(address)
    if inside is not None:
        return is_public_address(inside)
    return (
        address in _GLOBAL_UNICAST_IPV6_NETWORK
        and address.is_global
        and not any(address in network for network in _BLOCKED_IPV6_NETWORKS)
    )


def _extract_embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address maps to, if any.

    NAT64 with a network-specific prefix cannot be detected; such prefixes are not public.
    """
    if address in _IPV4_MAPPED_NETWORK or address in _NAT64_NETWORK:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF) if address in _SIX_TO_FOUR_NETWORK else None


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """An allowed host name or network, on one port or on ports 80 and 443."""

    host: str | None
    network: IPNetwork | None
    port: int | None

    @classmethod
    def parse(cls, text: str) -> "AllowedHost":
        """Parse ``files.example:8080``, ``10.1.0.0/16``, ``127.0.0.1:8081`` or ``[fd00::/8]:8080``.

        Raises:
            ValueError: The text is not a host or a network, or the port is out of range.
        """
        name, port = _split_host_port(text.strip().lower())
        if port is not None and not 0 < int(port) <= _PORT_MAX:
            raise ValueError(f'invalid port {port} in "{text}"; must be 1 to {_PORT_MAX}')
        number = None if port is None else int(port)
        try:
            return cls(None, ip_network(name), number)
        except ValueError:
            host = name.removesuffix(".")
            if not _ALLOWED_HOST_PATTERN.fullmatch(host):
                raise ValueError(f'"{text}" is not a host or network with an optional port') from None
            return cls(host, None, number)

    def covers(self, host: str, address: IPAddress, port: int) -> bool:
        if self.port is None and port not in WEB_PORTS:
            return False
        if self.port is not None and port != self.port:
            return False
        return _normalize_host(host) == self.host if self.network is None else address in self.network


def explain_refused_port(port: int, allowed: Iterable[AllowedHost]) -> str | None:
    """Return why downloads from this port are not allowed on any host, or None."""
    if port in WEB_PORTS or any(entry.port == port for entry in allowed):
        return None
    return f"port {port} is not allowed"


def explain_refused_host(
    host: str, addresses: Iterable[IPAddress], port: int, allowed: Sequence[AllowedHost]
) -> str | None:
    """Return why downloads from this host are not allowed, or None.

    One forbidden address is enough, because the connection could use any of them.
    """
    for address in addresses:
        if any(entry.covers(host, address, port) for entry in allowed):
            continue
        if port not in WEB_PORTS:
            return f"port {port} is not allowed"
        if not is_public_address(address):
            return NOT_PUBLIC_REASON
    return None


def _normalize_host(host: str) -> str:
    return host.lower().removesuffix(".")


def _split_host_port(text: str) -> tuple[str, str | None]:
    """Split a host from its port. An IPv6 address with a port needs brackets."""
    match = _BRACKETED_HOST_PATTERN.fullmatch(text)
    if match:
        return match["name"], match["port"]
    name, colon, port = text.rpartition(":")
    is_with_port = colon and ":" not in name and port.isascii() and port.isdecimal()
    return (name, port) if is_with_port else (text, None)
