"""Checks the URLs of the database and of the broker in the settings."""

import re

DATABASE_SCHEMES = ("postgresql", "postgres")
BROKER_URL_PREFIXES = ("redis://", "rediss://", "amqp://", "amqps://")
_PORT_MAX = 65_535
_UNESCAPED_PASSWORD_PATTERN = re.compile(r"[^:]*://(?:[^?]*@[^?]*@|[^@?]*/[^?]*@)")


def check_database_url(url: str) -> str:
    """Return the URL unchanged; ValueError, without parts of the URL that may be the password, if it is invalid."""
    if not url.strip():
        raise ValueError("is empty. Unset it to use the embedded server, or set it to postgresql://USER@HOST/DATABASE")
    scheme, found, _ = url.partition("://")
    if found and scheme not in DATABASE_SCHEMES:
        raise ValueError(f'has the scheme "{scheme}". Use postgresql://, without a driver name')
    if found and _UNESCAPED_PASSWORD_PATTERN.match(url):  # a part of the password would be shown as host or database
        raise ValueError('has an unescaped character in the password. Write "@" as %40 and "/" as %2F')
    if found and not all(map(_is_port, _list_ports(url))):  # the message omits it: it could be a part of the password
        raise ValueError('has an invalid port. Use a number from 1 to 65535. In a password, write "?" as %3F')
    return url


def _list_ports(url: str) -> list[str]:
    """Return the ports of a database URL, which can have several hosts; an empty text for a host without a port."""
    hosts = re.split("[/?]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
    return [host.rpartition("]")[2].partition(":")[2] for host in hosts.split(",")]


def _is_port(text: str) -> bool:
    return not text or bool(re.fullmatch("[0-9]{1,5}", text) and 1 <= int(text) <= _PORT_MAX)


def check_broker_url(text: str) -> str:
    """Return the URL unchanged; ValueError if no broker has its scheme."""
    if not text.startswith(BROKER_URL_PREFIXES):
        raise ValueError(f"must start with one of {', '.join(BROKER_URL_PREFIXES)}")
    return text
