"""Checks jobs that call external services before their rows are stored, and lists the services of a user."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tidemill.core.errors import InvalidRequest, format_suggestion
from tidemill.core.kinds import ENRICH_KIND, MATCH_KIND
from tidemill.core.principal import Role
from tidemill.enrichment.external_service import ExternalService, check_service_url, make_service_from_url
from tidemill.enrichment.feature import SERVICE_KIND_ALIASES
from tidemill.enrichment.job_requests import MATCH_COLUMNS, STRATEGY_COLUMN_PREFIX, EnrichRequest, MatchRequest
from tidemill.runtime import KindHooks, Runtime
from tidemill.store.job_submission import Submission


class ServiceJobUseCases:
    """Finds declared services, and checks submissions that call them."""

    def __init__(self, declared: Mapping[str, ExternalService]) -> None:
        self._declared = declared

    def list_services(self, role: Role) -> list[ExternalService]:
        """Return the services that a role may use."""
        return [service for service in self._declared.values() if service.is_allowed_for(role)]

    def get_service(self, name: str, role: Role) -> ExternalService:
        """Return a declared service by name; for administrators, also any public service by URL.

        Raise InvalidRequest if there is no such service, or if the role may not use it.
        """
        if "://" in name and role is Role.ADMIN:
            try:
                return make_service_from_url(check_service_url(name))
            except ValueError as error:
                raise InvalidRequest([f"params.service: {error}"]) from None
        known = {service.name: service for service in self.list_services(role)}
        if name not in known:
            hint = format_suggestion(name, known) or f". Declared services: {', '.join(known) or 'none'}"
            raise InvalidRequest([f'params.service: unknown service "{name[:100]}"{hint}'])
        return known[name]

    def prepare_submission(self, spec: Submission, role: Role) -> Submission:
        """Return the submission as it is stored, with defaults and limiter. Raise InvalidRequest with all problems."""
        kind = SERVICE_KIND_ALIASES.get(spec.kind, spec.kind)
        if kind == MATCH_KIND:
            match = MatchRequest.from_params(spec.params)
            service = self.get_service(match.service, role)
            return replace(
                spec,
                kind=kind,
                params=match.params,
                columns=MATCH_COLUMNS,
                limiter=service.limit,
                requires=list_service_requirements(match.service),
            )
        enrich = EnrichRequest.from_params(spec.params)
        service = self.get_service(enrich.service, role)
        if service.header is not None and service.header.lower() in map(str.lower, enrich.headers):
            raise InvalidRequest([f"params.headers: {service.header} is already set by the service declaration"])
        columns = tuple(enrich.fields)
        return replace(
            spec,
            kind=ENRICH_KIND,
            params=enrich.params,
            columns=columns,
            limiter=service.limit,
            requires=list_service_requirements(enrich.service),
        )


def list_service_requirements(name: str) -> tuple[str, ...]:
    """Return what a job that calls this service requires of a worker: its declaration, unless it is given by URL."""
    return () if "://" in name else (f"service:{name}",)


def make_match_submission(params: dict[str, Any], policy: dict[str, Any]) -> Submission:
    """Return the submission of a match job of the local user. It is not checked yet."""
    return Submission(MATCH_KIND, params=params, policy=policy)


def check_referenced_columns_exist(spec: Submission, columns: Collection[str]) -> None:
    """Raise InvalidRequest with all columns that the parameters refer to and that do not exist."""
    if not columns:
        return
    problems = [
        f'params.{param}: unknown column "{name}"{format_suggestion(name, columns)}'
        for param, name in _list_referenced_columns(spec)
        if name not in columns
    ]
    if problems:
        raise InvalidRequest(problems)


def _list_referenced_columns(spec: Submission) -> list[tuple[str, str]]:
    """Return pairs of a parameter and a column that it refers to."""
    if spec.kind == ENRICH_KIND:
        return [
            ("path" if f"{{{name}}}" in spec.params["path"] else "body", name)
            for name in EnrichRequest.from_params(spec.params).referenced_columns
        ]
    match = MatchRequest.from_params(spec.params)
    strategy_columns = [
        part.removeprefix(STRATEGY_COLUMN_PREFIX)
        for strategy in match.strategies
        for part in strategy.split("+")
        if part.startswith(STRATEGY_COLUMN_PREFIX)
    ]
    columns = [("query", match.query), *(("properties", name) for name in match.properties.values())]
    return columns + [("strategies", name) for name in strategy_columns]


def load_services(runtime: Runtime) -> Mapping[str, ExternalService]:
    """Return the services in ``tidemill.toml``. Raise InvalidSettings with all problems."""
    from tidemill.enrichment.config import parse_services  # noqa: PLC0415  most processes declare none

    return runtime.load_section(parse_services)


def make_service_use_cases(runtime: Runtime) -> ServiceJobUseCases:
    return ServiceJobUseCases(runtime.get(load_services))


def list_limiter_references(runtime: Runtime) -> list[tuple[str, str | None]]:
    """Return the limiters that services refer to, with a description of the service."""
    return [(f'service "{service.name}"', service.limit) for service in runtime.get(load_services).values()]


def _prepare_submission(runtime: Runtime, spec: Submission, role: Role) -> Submission:
    return runtime.get(make_service_use_cases).prepare_submission(spec, role)


MATCH_HOOKS = KindHooks(prepare_submission=_prepare_submission, check_columns=check_referenced_columns_exist)
ENRICH_HOOKS = KindHooks(prepare_submission=_prepare_submission, check_columns=check_referenced_columns_exist)
