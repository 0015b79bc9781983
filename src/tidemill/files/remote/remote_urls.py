"""Checks which URLs are allowed, redacts URLs and derives file names from them."""

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


def parse_allowed_url(url: str | httpx2.URL, allowed: Iterable[AllowedHost] = ()) -> httpx2.URL:
    """Return the parsed URL if its scheme, host and port are allowed. Does not resolve host names.

    Raises:
        InvalidInput: The URL is not allowed.
    """
    if len(str(url)) > URL_MAX_CHARS:
        raise InvalidInput(f"The URL is longer than {URL_MAX_CHARS} characters")
    try:
        link = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"Invalid URL: {error}") from None
    except ValueError:
        raise InvalidInput("Invalid URL") from None
    if link.scheme not in DEFAULT_HTTP_PORTS:
        raise InvalidInput("Invalid URL scheme. Use an http or https URL.")
    if not link.host:
        raise InvalidInput("The URL has no host")
    if link.userinfo:
        raise InvalidInput("The URL contains a user name or password, which would be stored. Remove it.")
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
    """Return the scheme, host and port. Secrets are sent to the same origin only."""
    return link.scheme, get_url_host(link).lower(), get_url_port(link)


def remove_url_query(link: httpx2.URL) -> str:
    """Return the URL without its query, which may contain secrets."""
    return f"{link.scheme}://{link.netloc.decode('ascii')}{link.raw_path.partition(b'?')[0].decode('ascii')}"


def resolve_redirect_url(link: httpx2.URL, location: str | None, allowed: Iterable[AllowedHost]) -> httpx2.URL:
    """Return the target of a redirect; InvalidInput if it is not allowed."""
    if not location:
        raise InvalidInput("the server sent a redirect without a Location header")
    try:
        target = link.join(location)
    except (httpx2.InvalidURL, ValueError):
        raise InvalidInput("the server redirected to an invalid URL") from None
    if link.scheme == "https" and target.scheme == "http":
        raise InvalidInput("the server redirected from https to http")
    try:
        return parse_allowed_url(target, allowed)
    except InvalidInput as error:
        raise InvalidInput(f"the server redirected to a URL that is not allowed: {error}") from None


def derive_file_name(link: httpx2.URL, disposition: str | None = None) -> str | None:
    """Return the file name from Content-Disposition or the path of the URL, without folders; None if both are empty."""
    for text in (_parse_disposition_name(disposition or "attachment"), link.path):
        name = _CONTROL_CHARACTERS.sub("", (text or "").replace("\\", "/").rpartition("/")[2]).strip()
        if name.strip("."):
            return name[-URL_FILE_NAME_MAX_CHARS:]  # keep the end, which has the extension
    return None


def get_url_file_name(url: str) -> str:
    """Return the last segment of a URL's path, which can be empty."""
    return derive_file_name(httpx2.URL(url)) or ""


def _parse_disposition_name(disposition: str) -> str | None:
    message = Message()
    try:
        message["Content-Disposition"] = _CONTROL_CHARACTERS.sub("", disposition)
        return message.get_filename()
    except ValueError:  # malformed header
        return None
