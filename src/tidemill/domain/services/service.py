"""A service: where it is, who may use it, and how it wants to be asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from tidemill.domain.addresses import NOT_PUBLIC, WEB_PORTS, Allowed, IPAddress, is_public, refusal
from tidemill.domain.identity import Role

Protocol = Literal["0.2", "1.0"]
PROTOCOLS: tuple[Protocol, ...] = ("0.2", "1.0")
SECRET_PREFIX = "TIDEMILL_SECRET_"  # noqa: S105  where secrets are, not one of them
SECRET = "{secret}"  # noqa: S105  likewise
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """``url`` is where it answers; what is asked of it lies there or below.

    ``header`` carries the secret, as ``value`` says; the secret itself is in the environment of workers, and nowhere
    else. ``limit`` names the limiter that requests count against, each by itself: not its rows.
    """

    name: str
    url: str
    header: str | None = None
    value: str = SECRET
    secret_env: str = ""
    allow_private: bool = False
    use: tuple[Role, ...] = (Role.ADMIN,)
    limit: str | None = None
    protocol: Protocol = "0.2"
    batch: int | None = None  # rows in a request; without it, as many as the service says it takes
    concurrency: int = 4  # requests at a time, of one process
    timeout: float = 30.0  # seconds for one request
    answer_mb: int = 8

    @property
    def host(self) -> str:
        return (urlsplit(self.url).hostname or "").lower()

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or PORTS[parts.scheme]

    @property
    def max_bytes(self) -> int:
        return self.answer_mb << 20

    def is_for(self, role: Role) -> bool:
        return role in self.use or (role is Role.ADMIN and bool(self.use))

    def secret(self, environment: Mapping[str, str]) -> str | None:
        """What its header is made of; None if it needs none, ``""`` if it is missing."""
        return None if self.header is None else environment.get(self.secret_env, "").strip()

    def reach(self, also: Sequence[Allowed] = ()) -> "Reach":
        tls = self.url.startswith("https:")
        return Reach(self.host, self.port, private=self.allow_private, also=tuple(also), tls=tls)


@dataclass(frozen=True, slots=True)
class Reach:
    """Which machines a call may end at: the service's own, whatever redirects say, and what is public on the web."""

    host: str
    port: int
    private: bool = False
    also: tuple[Allowed, ...] = ()
    tls: bool = False

    def refusal(self, host: str, addresses: Sequence[IPAddress], port: int) -> str | None:
        """Why nothing is sent there, or None. One bad address is enough: any of them could be the one."""
        is_own = (host.lower(), port) == (self.host, self.port)
        if is_own and self.private:
            return None
        if is_own and port not in WEB_PORTS:
            bad = [address for address in addresses if not is_public(address)]
            return NOT_PUBLIC if bad and refusal(host, bad, port, self.also) else None
        return refusal(host, addresses, port, self.also)


def undeclared(url: str) -> Service:
    """One that an administrator names by its address: on the public web only, and without a secret."""
    return Service(name=(urlsplit(url).hostname or "").lower(), url=url)
