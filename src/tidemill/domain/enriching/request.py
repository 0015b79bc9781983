"""What an enriching job is asked to do, read from its params; every mistake is told."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidemill.domain.columns import NAME_MAX
from tidemill.domain.declaration import values
from tidemill.domain.declaration.reading import Reading
from tidemill.domain.enriching import template
from tidemill.domain.enriching.json_path import JsonPath
from tidemill.domain.errors import InvalidRequest

KIND = "tidemill.enrich"
SPELLINGS = ("http.enrich", "enrich", KIND)
FIELDS_MAX, HEADERS_MAX, LENGTH_MAX = 100, 20, 4_000
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}").fullmatch
_SECRET = ("authorization", "cookie", "proxy-authorization", "x-api-key", "api-key", "x-auth-token")
_OURS = (
    "host",
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "accept-encoding",
    "expect",
    "upgrade",
    "te",
)


@dataclass(frozen=True, kw_only=True)
class EnrichRequest:
    """``path`` is asked for below the service's address; ``fields`` are taken from the answer, by their JSON path."""

    service: str
    path: str
    method: str = "GET"
    body: Any = None
    headers: Mapping[str, str]
    fields: Mapping[str, str]
    required: tuple[str, ...] = ()

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> "EnrichRequest":
        """InvalidRequest with everything that is wrong."""
        reader = Reading()
        said = reader.read("params", params, _READERS)
        for name in ("service", "path", "fields"):
            if name not in params:
                reader.wrong(f"params.{name}", "it is missing")
        said.setdefault("headers", {})
        if said.get("body") is not None and said.get("method", "GET") == "GET":
            reader.wrong("params.body", "a GET has no body: say method POST")
        for name in set(said.get("required", ())) - set(said.get("fields", said.get("required", ()))):
            reader.wrong("params.required", f"there is no field {name!r}")
        if reader.problems:
            raise InvalidRequest(reader.problems)
        return cls(**said)

    @property
    def params(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in _READERS}
        return kept | {"fields": dict(self.fields), "headers": dict(self.headers), "required": list(self.required)}

    @property
    def columns(self) -> list[str]:
        """Those of the rows that it asks for."""
        return list(dict.fromkeys([*template.columns_in(self.path), *template.columns_in(self.body)]))

    @cached_property
    def _paths(self) -> dict[str, JsonPath]:
        return {name: JsonPath.parse(text) for name, text in self.fields.items()}

    def result_of(self, document: Any) -> dict[str, Any]:
        return {name: path.find(document) for name, path in self._paths.items()}

    def missing_in(self, result: Mapping[str, Any]) -> list[str]:
        return [name for name in self.required if result[name] in (None, [], "")]


def _path(value: Any) -> str:
    text = values.text(value)
    problem = template.problem_of(text)
    if problem:
        raise ValueError(problem)
    if len(text) > LENGTH_MAX or not text.isprintable() or " " in text or "#" in text or "\\" in text:
        raise ValueError(f"a path has no spaces, no # and no backslash, and at most {LENGTH_MAX} characters")
    if not text.startswith("/") or text.startswith("//"):
        raise ValueError("a path below the service's address is wanted, as in /items/{sku}")
    if template.leads_upwards(text):
        raise ValueError("a path does not lead upwards")
    return text


def _fields(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not 0 < len(value) <= FIELDS_MAX:
        raise ValueError(f'an object is wanted, of 1 to {FIELDS_MAX} fields: {{"price": "$.offers[0].price"}}')
    wrong = []
    for name, path in value.items():
        if not 0 < len(name) <= NAME_MAX or "\x00" in name:
            wrong.append(f"the name of a field has 1 to {NAME_MAX} characters")
        try:
            JsonPath.parse(values.text(path))
        except ValueError as error:
            wrong.append(f"{name[:50]}: {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return dict(value)


def _headers(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > HEADERS_MAX:
        raise ValueError(f"an object of at most {HEADERS_MAX} headers is wanted")
    for name, text in value.items():
        if not _HEADER(name) or name.lower() in _OURS:
            raise ValueError(f"{name[:50]!r} is no header that can be said here")
        if name.lower() in _SECRET:
            raise ValueError(f"{name} is a secret, which would be stored: the service's declaration names its header")
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise ValueError(f"{name}: a text of printable ASCII characters is wanted")
    return dict(value)


def _body(value: Any) -> Any:
    problems = list(dict.fromkeys(template.problems_in(value)))
    if problems:
        raise ValueError("; ".join(problems))
    return value


_READERS: dict[str, values.Reader] = {
    "service": values.text,
    "path": _path,
    "method": values.one_of(("GET", "POST")),
    "body": _body,
    "headers": _headers,
    "fields": _fields,
    "required": values.several(values.text, least=0),
}
