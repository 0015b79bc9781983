"""From what people write in a ``tidemill.toml`` to services."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tidemill.domain.declaration import values
from tidemill.domain.declaration.section import Section
from tidemill.domain.services.service import PROTOCOLS, SECRET, SECRET_PREFIX, Service

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}").fullmatch
_ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}").fullmatch
TIMEOUT_MAX = 60  # a batch that is split takes several of them, and its rows wait
_OURS = ("host", "content-type", "content-length", "transfer-encoding", "connection", "accept-encoding")


def whole(least: int, most: int) -> values.Reader:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most} is wanted")
        return value

    return read


def seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= TIMEOUT_MAX:
        raise ValueError(f"a number of seconds is wanted, above 0 and at most {TIMEOUT_MAX}")
    return float(value)


def address(value: Any) -> str:
    """An http or https URL without anything that would be stored beside it."""
    try:
        parts = urlsplit(values.text(value))
        port = parts.port
    except ValueError:
        raise ValueError("this is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("an http or https URL with a host is wanted")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a user or a password does not belong here: name a header, and the variable of its secret")
    if parts.query or parts.fragment or any(ord(mark) <= ord(" ") for mark in value):
        raise ValueError("a URL without ? and # and spaces is wanted; secrets go into a header")
    return str(value)


def _header(value: Any) -> str:
    if not _HEADER(values.text(value)) or value.lower() in _OURS:
        raise ValueError("the name of a header is wanted, as Authorization is")
    return str(value)


def _value(value: Any) -> str:
    if SECRET not in values.text(value) or not value.isascii() or not value.isprintable():
        raise ValueError(f"a text with {SECRET} in it is wanted, as in Bearer {SECRET}")
    return str(value)


def _environment(value: Any) -> str:
    if not _ENVIRONMENT(values.text(value)):
        raise ValueError("the name of a variable in the environment is wanted, never the secret itself")
    return str(value)


_SERVICE: dict[str, values.Reader] = {
    "url": address,
    "header": _header,
    "value": _value,
    "secret_env": _environment,
    "allow_private": values.flag,
    "use": values.several(values.role, least=0),
    "limit": values.text,
    "protocol": values.one_of(PROTOCOLS),
    "batch": whole(1, 1_000),
    "concurrency": whole(1, 100),
    "timeout": seconds,
    "answer_mb": whole(1, 256),
}


def services(document: Mapping[str, Any]) -> dict[str, Service]:
    """The services in a document, by name; InvalidSettings with everything that is wrong with them."""
    return _Services().declared(document)


class _Services(Section[Service]):
    section = "services"

    def one(self, path: str, name: str, given: Mapping[str, Any]) -> Service | None:
        said = self.read(path, given, _SERVICE)
        if "url" not in given:
            self.wrong(f"{path}.url", "it is missing: where the service answers")
        self._check_secret(path, given, said)
        said.setdefault("secret_env", SECRET_PREFIX + name.upper().replace("-", "_"))
        return Service(name=name, **said) if "url" in said else None

    def _check_secret(self, path: str, given: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        for key in ("value", "secret_env"):
            if key in given and "header" not in given:
                self.wrong(f"{path}.{key}", "without a header there is nothing to say it in")
        is_open = said.get("url", "").startswith("http:") and not said.get("allow_private", False)
        if "header" in given and is_open:
            self.wrong(f"{path}.url", "a secret is sent over https only, but to a private address that is allowed")
