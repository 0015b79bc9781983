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
NOT_PUBLIC = "it is not on the public internet"
_LAST_PORT = 65_535
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_BRACKETED = re.compile(r"\[(?P<name>[^]]+)\](:(?P<port>[0-9]+))?")

# Beside what Python itself holds for private: that differs from release to release, and is not about attacks.
_NEVER_4 = [
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
_UNICAST_6 = ip_network("2000::/3")  # nothing else is handed out, so nothing else is believed
_NEVER_6 = [
    ip_network(text)
    for text in (
        "2001::/32",  # Teredo: tunnels to any address, and nobody serves files there
        "2001:db8::/32",
        "3fff::/20",
    )
]
_MAPPED, _NAT64, _SIX_TO_FOUR = ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96"), ip_network("2002::/16")


def literal(host: str) -> IPAddress | None:
    """The address that a host is when it is no name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_public(address: IPAddress) -> bool:
    """Whether it is a machine that anybody could speak to. An IPv6 address that leads to an IPv4 one is as that is."""
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in network for network in _NEVER_4)
    if address.scope_id is not None:
        return False
    inside = _inside(address)
    if inside is not None:
        return is_public(inside)
    return address in _UNICAST_6 and address.is_global and not any(address in network for network in _NEVER_6)


def _inside(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to it end at. NAT64 with prefixes of one's own cannot be told: it is not public."""
    if address in _MAPPED or address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF) if address in _SIX_TO_FOUR else None


@dataclass(frozen=True, slots=True)
class Allowed:
    """A host by its name, or every address of a network; on one port, or on those of the web."""

    host: str | None
    network: IPNetwork | None
    port: int | None

    @classmethod
    def parse(cls, text: str) -> "Allowed":
        """``files.example:8080``, ``10.1.0.0/16``, ``127.0.0.1:8081``, ``[fd00::/8]:8080``; else a ValueError."""
        name, port = _split(text.strip().lower())
        if port is not None and not 0 < int(port) <= _LAST_PORT:
            raise ValueError(f"{text!r}: {port} is not a port")
        number = None if port is None else int(port)
        try:
            return cls(None, ip_network(name), number)
        except ValueError:
            host = name.removesuffix(".")
            if not _HOST.fullmatch(host):
                raise ValueError(f"{text!r} is not a host or a network, with or without a port") from None
            return cls(host, None, number)

    def covers(self, host: str, address: IPAddress, port: int) -> bool:
        if self.port is None and port not in WEB_PORTS:
            return False
        if self.port is not None and port != self.port:
            return False
        return _name(host) == self.host if self.network is None else address in self.network


def port_refusal(port: int, allowed: Iterable[Allowed]) -> str | None:
    """Why nothing is fetched from this port, on whatever machine."""
    if port in WEB_PORTS or any(entry.port == port for entry in allowed):
        return None
    return f"port {port} is not one of the web's"


def refusal(host: str, addresses: Iterable[IPAddress], port: int, allowed: Sequence[Allowed]) -> str | None:
    """Why nothing is fetched from there, or None. One bad address is enough: any of them could be the one."""
    for address in addresses:
        if any(entry.covers(host, address, port) for entry in allowed):
            continue
        if port not in WEB_PORTS:
            return f"port {port} is not one of the web's"
        if not is_public(address):
            return NOT_PUBLIC
    return None


def _name(host: str) -> str:
    return host.lower().removesuffix(".")


def _split(text: str) -> tuple[str, str | None]:
    """Name and port. IPv6 has colons of its own: with a port it stands in brackets."""
    found = _BRACKETED.fullmatch(text)
    if found:
        return found["name"], found["port"]
    name, colon, port = text.rpartition(":")
    is_with_port = colon and ":" not in name and port.isascii() and port.isdecimal()
    return (name, port) if is_with_port else (text, None)
