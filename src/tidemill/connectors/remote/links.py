"""URLs: which may be fetched at all, how they are shown, and what their files are called."""

import re
from collections.abc import Iterable
from email.message import Message

import httpx2

from tidemill.domain.addresses import Allowed, literal, port_refusal, refusal
from tidemill.domain.errors import InvalidInput

LONGEST = 8_192
NAME_MAX = 200
PORTS = {"http": 80, "https": 443}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


def checked(url: str | httpx2.URL, allowed: Iterable[Allowed] = ()) -> httpx2.URL:
    """The URL if its scheme, host and port may be fetched from; names are not resolved yet.

    Raises:
        InvalidInput: It may not, and why.
    """
    if len(str(url)) > LONGEST:
        raise InvalidInput(f"the URL is longer than {LONGEST} characters")
    try:
        link = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"this is not a URL: {error}") from None
    except ValueError:
        raise InvalidInput("this is not a URL") from None
    if link.scheme not in PORTS:
        raise InvalidInput("only http and https URLs can be fetched")
    if not link.host:
        raise InvalidInput("the URL has no host")
    if link.userinfo:
        raise InvalidInput("the URL has a user or a password in it, which would be stored")
    reason = _refusal(link, tuple(allowed))
    if reason:
        raise InvalidInput(f"{link.host}: {reason}")
    return link.copy_with(fragment=None)


def _refusal(link: httpx2.URL, allowed: tuple[Allowed, ...]) -> str | None:
    host, port = host_of(link), port_of(link)
    address = literal(host)
    return port_refusal(port, allowed) if address is None else refusal(host, [address], port, allowed)


def host_of(link: httpx2.URL) -> str:
    return link.raw_host.decode("ascii")


def port_of(link: httpx2.URL) -> int:
    return PORTS[link.scheme] if link.port is None else link.port


def origin_of(link: httpx2.URL) -> tuple[str, str, int]:
    """What a secret is for: a scheme, a machine and a port, and not one of them alone."""
    return link.scheme, host_of(link).lower(), port_of(link)


def bare(link: httpx2.URL) -> str:
    """As it is shown and kept: what follows the path may be a secret."""
    return f"{link.scheme}://{link.netloc.decode('ascii')}{link.raw_path.partition(b'?')[0].decode('ascii')}"


def redirected(link: httpx2.URL, location: str | None, allowed: Iterable[Allowed]) -> httpx2.URL:
    """Where a redirect leads, checked as if it had been asked for."""
    if not location:
        raise InvalidInput("the server redirects to nowhere")
    try:
        target = link.join(location)
    except (httpx2.InvalidURL, ValueError):
        raise InvalidInput("the server redirects to what is not a URL") from None
    if link.scheme == "https" and target.scheme == "http":
        raise InvalidInput("the server redirects from https to http")
    try:
        return checked(target, allowed)
    except InvalidInput as error:
        raise InvalidInput(f"the server redirects elsewhere: {error}") from None


def name_of(link: httpx2.URL, disposition: str | None = None) -> str | None:
    """What the file is called: by its server, or by the end of its path. Never more than a name."""
    for text in (_filename(disposition or "attachment"), link.path):
        name = _UNPRINTABLE.sub("", (text or "").replace("\\", "/").rpartition("/")[2]).strip()
        if name.strip("."):
            return name[-NAME_MAX:]  # its end says what it is
    return None


def file_name(url: str) -> str:
    """What the path of a URL ends with; empty if that is nothing."""
    return name_of(httpx2.URL(url)) or ""


def _filename(disposition: str) -> str | None:
    message = Message()
    try:
        message["Content-Disposition"] = _UNPRINTABLE.sub("", disposition)
        return message.get_filename()
    except ValueError:  # of what no standard allows
        return None
