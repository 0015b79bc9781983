"""Which machines a download may speak to: those of the public internet, and those that are allowed beside them."""

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
NOT_PUBLIC_REASON = "it is not on the public internet"
_PORT_MAX = 65_535
_ALLOWED_HOST_PATTERN = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_BRACKETED_HOST_PATTERN = re.compile(r"\[(?P<name>[^]]+)\](:(?P<port>[0-9]+))?")

# Beside what Python itself holds for private: that differs from release to release, and is not about attacks.
_BLOCKED_IPV4_NETWORKS = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # shared by the customers of a carrier, or of a cloud
        "168.63.129.16",  # public by its number, but the inside of every Azure machine
        "192.0.0.0/24",
        "192.88.99.0/24",  # relays to 6to4
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
_GLOBAL_UNICAST_IPV6_NETWORK = ip_network("2000::/3")  # nothing else is handed out, so nothing else is believed
_BLOCKED_IPV6_NETWORKS = [
    ip_network(text)
    for text in (
        "2001::/32",  # Teredo: tunnels to any address, and nobody serves files there
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
    """The address that a host is when it is no name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_public_address(address: IPAddress) -> bool:
    """Whether it is a machine that anybody could speak to. An IPv6 address that leads to an IPv4 one is as that is."""
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
    """The IPv4 address that packets to it end at. NAT64 with prefixes of one's own cannot be told: it is not public."""
    if address in _IPV4_MAPPED_NETWORK or address in _NAT64_NETWORK:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF) if address in _SIX_TO_FOUR_NETWORK else None


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """A host by its name, or every address of a network; on one port, or on those of the web."""

    host: str | None
    network: IPNetwork | None
    port: int | None

    @classmethod
    def parse(cls, text: str) -> "AllowedHost":
        """``files.example:8080``, ``10.1.0.0/16``, ``127.0.0.1:8081``, ``[fd00::/8]:8080``; else a ValueError."""
        name, port = _split_host_port(text.strip().lower())
        if port is not None and not 0 < int(port) <= _PORT_MAX:
            raise ValueError(f"{text!r}: {port} is not a port")
        number = None if port is None else int(port)
        try:
            return cls(None, ip_network(name), number)
        except ValueError:
            host = name.removesuffix(".")
            if not _ALLOWED_HOST_PATTERN.fullmatch(host):
                raise ValueError(f"{text!r} is not a host or a network, with or without a port") from None
            return cls(host, None, number)

    def covers(self, host: str, address: IPAddress, port: int) -> bool:
        if self.port is None and port not in WEB_PORTS:
            return False
        if self.port is not None and port != self.port:
            return False
        return _normalize_host(host) == self.host if self.network is None else address in self.network


def explain_refused_port(port: int, allowed: Iterable[AllowedHost]) -> str | None:
    """Why nothing is fetched from this port, on whatever machine."""
    if port in WEB_PORTS or any(entry.port == port for entry in allowed):
        return None
    return f"port {port} is not one of the web's"


def explain_refused_host(
    host: str, addresses: Iterable[IPAddress], port: int, allowed: Sequence[AllowedHost]
) -> str | None:
    """Why nothing is fetched from there, or None. One bad address is enough: any of them could be the one."""
    for address in addresses:
        if any(entry.covers(host, address, port) for entry in allowed):
            continue
        if port not in WEB_PORTS:
            return f"port {port} is not one of the web's"
        if not is_public_address(address):
            return NOT_PUBLIC_REASON
    return None


def _normalize_host(host: str) -> str:
    return host.lower().removesuffix(".")


def _split_host_port(text: str) -> tuple[str, str | None]:
    """Name and port. IPv6 has colons of its own: with a port it stands in brackets."""
    found = _BRACKETED_HOST_PATTERN.fullmatch(text)
    if found:
        return found["name"], found["port"]
    name, colon, port = text.rpartition(":")
    is_with_port = colon and ":" not in name and port.isascii() and port.isdecimal()
    return (name, port) if is_with_port else (text, None)
