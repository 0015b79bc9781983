"""Jobs that call services: what is asked for is checked before a row of it is stored."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.domain import enriching, matching
from tidemill.domain.declaration.suggest import did_you_mean
from tidemill.domain.enriching import EnrichRequest
from tidemill.domain.errors import InvalidRequest
from tidemill.domain.identity import Role
from tidemill.domain.matching import MatchRequest
from tidemill.domain.matching.strategies import COLUMN
from tidemill.domain.services import Service
from tidemill.domain.services.declare import address
from tidemill.domain.services.service import undeclared
from tidemill.store.submit import Submission

KINDS = (matching.KIND, enriching.KIND)
_SPELLINGS = dict.fromkeys(matching.SPELLINGS, matching.KIND) | dict.fromkeys(enriching.SPELLINGS, enriching.KIND)


def service_kind(kind: str) -> str | None:
    """The built-in kind that a word in a request means, if it is one of those that call services."""
    return _SPELLINGS.get(kind)


class ServiceJobs:
    """The services of a process, and the door to ask for work that calls them."""

    def __init__(self, declared: Mapping[str, Service]) -> None:
        self._declared = declared

    def of(self, role: Role) -> list[Service]:
        """Those that a role may use."""
        return [one for one in self._declared.values() if one.is_for(role)]

    def find(self, name: str, role: Role) -> Service:
        """A declared one; for administrators, any public one by its address."""
        if "://" in name and role is Role.ADMIN:
            try:
                return undeclared(address(name))
            except ValueError as error:
                raise InvalidRequest([f"params.service: {error}"]) from None
        known = {one.name: one for one in self.of(role)}
        if name not in known:
            raise InvalidRequest([f"params.service: there is no service {name[:100]!r}{did_you_mean(name, known)}"])
        return known[name]

    def prepare(self, spec: Submission, role: Role) -> Submission:
        """The submission as it is stored, of a kind that calls services; InvalidRequest with every mistake."""
        kind = service_kind(spec.kind)
        if kind == matching.KIND:
            match = MatchRequest.of(spec.params)
            limiter = self.find(match.service, role).limit
            return replace(spec, kind=kind, params=match.params, columns=matching.COLUMNS, limiter=limiter)
        enrich = EnrichRequest.of(spec.params)
        service = self.find(enrich.service, role)
        if service.header is not None and service.header.lower() in map(str.lower, enrich.headers):
            raise InvalidRequest([f"params.headers: {service.header} is said by the service's declaration"])
        columns = tuple(enrich.fields)
        return replace(spec, kind=enriching.KIND, params=enrich.params, columns=columns, limiter=service.limit)


def columns_in(inputs: Iterable[Any]) -> set[str]:
    """Every column that some row has."""
    return {str(name) for row in inputs if isinstance(row, dict) for name in row}


def check_columns(spec: Submission, columns: Collection[str]) -> None:
    """InvalidRequest for every column that is asked for and that no row has."""
    if spec.kind not in KINDS or not columns:
        return
    problems = [
        f"params.{where}: the rows have no column {name!r}{did_you_mean(name, columns)}"
        for where, name in _columns_of(spec)
        if name not in columns
    ]
    if problems:
        raise InvalidRequest(problems)


def _columns_of(spec: Submission) -> list[tuple[str, str]]:
    if spec.kind == enriching.KIND:
        return [("path" if f"{{{name}}}" in spec.params["path"] else "body", name) for name in _enrich(spec).columns]
    match = MatchRequest.of(spec.params)
    others = [
        part.removeprefix(COLUMN) for one in match.strategies for part in one.split("+") if part.startswith(COLUMN)
    ]
    found = [("query", match.query), *(("properties", name) for name in match.properties.values())]
    return found + [("strategies", name) for name in others]


def _enrich(spec: Submission) -> EnrichRequest:
    return EnrichRequest.of(spec.params)
