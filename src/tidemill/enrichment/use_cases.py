"""Jobs that call services: what is asked for is checked before a row of it is stored."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.core.errors import InvalidRequest
from tidemill.core.kinds import ENRICH_KIND, MATCH_KIND, SERVICE_KINDS
from tidemill.core.principal import Role
from tidemill.core.suggest import suggest_similar
from tidemill.enrichment.enrich_request import ENRICH_KIND_ALIASES, EnrichRequest
from tidemill.enrichment.external_service import ExternalService, make_undeclared_service, parse_service_url
from tidemill.enrichment.match_request import MATCH_COLUMNS, MATCH_KIND_ALIASES, STRATEGY_COLUMN_PREFIX, MatchRequest
from tidemill.store import workers
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission

_SERVICE_KIND_ALIASES = dict.fromkeys(MATCH_KIND_ALIASES, MATCH_KIND) | dict.fromkeys(ENRICH_KIND_ALIASES, ENRICH_KIND)


def resolve_service_kind(kind: str) -> str | None:
    """The built-in kind that a word in a request means, if it is one of those that call services."""
    return _SERVICE_KIND_ALIASES.get(kind)


class ServiceJobUseCases:
    """The services of a process, and the door to ask for work that calls them."""

    def __init__(self, declared: Mapping[str, ExternalService]) -> None:
        self._declared = declared

    def list_services(self, role: Role) -> list[ExternalService]:
        """Those that a role may use."""
        return [one for one in self._declared.values() if one.is_allowed_for(role)]

    def get_service(self, name: str, role: Role) -> ExternalService:
        """A declared one; for administrators, any public one by its address."""
        if "://" in name and role is Role.ADMIN:
            try:
                return make_undeclared_service(parse_service_url(name))
            except ValueError as error:
                raise InvalidRequest([f"params.service: {error}"]) from None
        known = {one.name: one for one in self.list_services(role)}
        if name not in known:
            raise InvalidRequest([f"params.service: there is no service {name[:100]!r}{suggest_similar(name, known)}"])
        return known[name]

    def prepare_submission(self, spec: Submission, role: Role) -> Submission:
        """The submission as it is stored, of a kind that calls services; InvalidRequest with every mistake."""
        kind = resolve_service_kind(spec.kind)
        if kind == MATCH_KIND:
            match = MatchRequest.from_params(spec.params)
            limiter = self.get_service(match.service, role).limit
            return replace(spec, kind=kind, params=match.params, columns=MATCH_COLUMNS, limiter=limiter)
        enrich = EnrichRequest.from_params(spec.params)
        service = self.get_service(enrich.service, role)
        if service.header is not None and service.header.lower() in map(str.lower, enrich.headers):
            raise InvalidRequest([f"params.headers: {service.header} is said by the service's declaration"])
        columns = tuple(enrich.fields)
        return replace(spec, kind=ENRICH_KIND, params=enrich.params, columns=columns, limiter=service.limit)


def list_input_columns(inputs: Iterable[Any]) -> set[str]:
    """Every column that some row has."""
    return {str(name) for row in inputs if isinstance(row, dict) for name in row}


def check_required_columns(spec: Submission, columns: Collection[str]) -> None:
    """InvalidRequest for every column that is asked for and that no row has."""
    if spec.kind not in SERVICE_KINDS or not columns:
        return
    problems = [
        f"params.{where}: the rows have no column {name!r}{suggest_similar(name, columns)}"
        for where, name in _list_required_columns(spec)
        if name not in columns
    ]
    if problems:
        raise InvalidRequest(problems)


def _list_required_columns(spec: Submission) -> list[tuple[str, str]]:
    if spec.kind == ENRICH_KIND:
        return [
            ("path" if f"{{{name}}}" in spec.params["path"] else "body", name)
            for name in _parse_enrich_request(spec).referenced_columns
        ]
    match = MatchRequest.from_params(spec.params)
    others = [
        part.removeprefix(STRATEGY_COLUMN_PREFIX)
        for one in match.strategies
        for part in one.split("+")
        if part.startswith(STRATEGY_COLUMN_PREFIX)
    ]
    found = [("query", match.query), *(("properties", name) for name in match.properties.values())]
    return found + [("strategies", name) for name in others]


def _parse_enrich_request(spec: Submission) -> EnrichRequest:
    return EnrichRequest.from_params(spec.params)


async def is_service_submission(db: Database, spec: Submission) -> bool:
    """Whether a kind is one of the built-in ones that call services; a handler of yours with such a name goes first."""
    kind = resolve_service_kind(spec.kind)
    return kind is not None and (kind == spec.kind or spec.kind not in await db.read(workers.list_kinds))
