"""URLs: which may be fetched at all, how they are shown, and what their files are called."""

import re
from collections.abc import Iterable
from email.message import Message

import httpx2

from tidemill.core.allowed_hosts import AllowedHost, explain_refused_host, explain_refused_port, parse_ip_literal
from tidemill.core.errors import InvalidInput

URL_MAX_CHARS = 8_192
URL_FILE_NAME_MAX_CHARS = 200
DEFAULT_HTTP_PORTS = {"http": 80, "https": 443}
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")


def check_url(url: str | httpx2.URL, allowed: Iterable[AllowedHost] = ()) -> httpx2.URL:
    """The URL if its scheme, host and port may be fetched from; names are not resolved yet.

    Raises:
        InvalidInput: It may not, and why.
    """
    if len(str(url)) > URL_MAX_CHARS:
        raise InvalidInput(f"the URL is longer than {URL_MAX_CHARS} characters")
    try:
        link = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"this is not a URL: {error}") from None
    except ValueError:
        raise InvalidInput("this is not a URL") from None
    if link.scheme not in DEFAULT_HTTP_PORTS:
        raise InvalidInput("only http and https URLs can be fetched")
    if not link.host:
        raise InvalidInput("the URL has no host")
    if link.userinfo:
        raise InvalidInput("the URL has a user or a password in it, which would be stored")
    reason = _find_refusal_reason(link, tuple(allowed))
    if reason:
        raise InvalidInput(f"{link.host}: {reason}")
    return link.copy_with(fragment=None)


def _find_refusal_reason(link: httpx2.URL, allowed: tuple[AllowedHost, ...]) -> str | None:
    host, port = get_url_host(link), get_url_port(link)
    address = parse_ip_literal(host)
    return (
        explain_refused_port(port, allowed) if address is None else explain_refused_host(host, [address], port, allowed)
    )


def get_url_host(link: httpx2.URL) -> str:
    return link.raw_host.decode("ascii")


def get_url_port(link: httpx2.URL) -> int:
    return DEFAULT_HTTP_PORTS[link.scheme] if link.port is None else link.port


def get_url_origin(link: httpx2.URL) -> tuple[str, str, int]:
    """What a secret is for: a scheme, a machine and a port, and not one of them alone."""
    return link.scheme, get_url_host(link).lower(), get_url_port(link)


def redact_url(link: httpx2.URL) -> str:
    """As it is shown and kept: what follows the path may be a secret."""
    return f"{link.scheme}://{link.netloc.decode('ascii')}{link.raw_path.partition(b'?')[0].decode('ascii')}"


def resolve_redirect_url(link: httpx2.URL, location: str | None, allowed: Iterable[AllowedHost]) -> httpx2.URL:
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
        return check_url(target, allowed)
    except InvalidInput as error:
        raise InvalidInput(f"the server redirects elsewhere: {error}") from None


def derive_file_name(link: httpx2.URL, disposition: str | None = None) -> str | None:
    """What the file is called: by its server, or by the end of its path. Never more than a name."""
    for text in (_parse_disposition_name(disposition or "attachment"), link.path):
        name = _CONTROL_CHARACTERS.sub("", (text or "").replace("\\", "/").rpartition("/")[2]).strip()
        if name.strip("."):
            return name[-URL_FILE_NAME_MAX_CHARS:]  # its end says what it is
    return None


def get_url_file_name(url: str) -> str:
    """What the path of a URL ends with; empty if that is nothing."""
    return derive_file_name(httpx2.URL(url)) or ""


def _parse_disposition_name(disposition: str) -> str | None:
    message = Message()
    try:
        message["Content-Disposition"] = _CONTROL_CHARACTERS.sub("", disposition)
        return message.get_filename()
    except ValueError:  # of what no standard allows
        return None
