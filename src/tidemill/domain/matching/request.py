"""What a matching job is asked to do, read from its params; every mistake is told."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.domain.declaration import values
from tidemill.domain.declaration.reading import Reading
from tidemill.domain.errors import InvalidRequest
from tidemill.domain.matching import strategies
from tidemill.domain.matching.strategies import Query, queries_of
from tidemill.domain.services.declare import whole

KIND = "tidemill.match"
SPELLINGS = ("match", "entity.match", KIND)
LIMIT_MAX, PROPERTIES_MAX, DELAY_MAX = 50, 20, 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRequest:
    """``query`` and ``properties`` name columns of the row.

    Without a ``threshold``, what the service itself calls a match is one; with it, only if ``accept_match`` says so.
    """

    service: str
    query: str
    type: str | None = None
    properties: Mapping[str, str]
    limit: int = 5
    threshold: float | None = None
    accept_match: bool = True
    strategies: tuple[str, ...] = strategies.DEFAULT
    not_found_delay: float = 2.0

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> "MatchRequest":
        """InvalidRequest with everything that is wrong."""
        reader = Reading()
        said = reader.read("params", params, _READERS)
        for name in ("service", "query"):
            if name not in params:
                reader.wrong(f"params.{name}", "it is missing")
        said.setdefault("properties", {})
        said.setdefault("accept_match", said.get("threshold") is None)
        if params.get("threshold") is None and params.get("accept_match") is False:
            reader.wrong("params.threshold", "it is missing: without it, and without accept_match, nothing is a match")
        if reader.problems:
            raise InvalidRequest(reader.problems)
        return cls(**said)

    @property
    def params(self) -> dict[str, Any]:
        """As they are kept with the job: with all that was not said."""
        kept = {name: getattr(self, name) for name in _READERS}
        return kept | {"properties": dict(self.properties), "strategies": list(self.strategies)}

    def queries(self, row: Mapping[str, Any]) -> list[Query]:
        return queries_of(
            row,
            column=self.query,
            type_=self.type,
            properties=self.properties,
            limit=self.limit,
            strategies=self.strategies,
        )


def _or_none(read: values.Reader) -> values.Reader:
    return lambda value: None if value is None else read(value)


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:  # an integer may be larger than any of those
        raise ValueError("a number is wanted")
    return float(value)


def _delay(value: Any) -> float:
    if not 0 <= _number(value) <= DELAY_MAX:
        raise ValueError(f"a number of seconds is wanted, from 0 to {DELAY_MAX}")
    return float(value)


def _properties(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > PROPERTIES_MAX:
        raise ValueError(f"an object is wanted, of property to column, with at most {PROPERTIES_MAX}")
    return {values.text(pid): values.text(column) for pid, column in value.items()}


def _strategies(value: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = values.several(values.text)(value)
    wrong = [problem for problem in map(strategies.problem_of, found) if problem]
    if wrong:
        raise ValueError("; ".join(wrong))
    if len(found) > strategies.MOST:
        raise ValueError(f"at most {strategies.MOST} are tried")
    return found


_READERS: dict[str, values.Reader] = {
    "service": values.text,
    "query": values.text,
    "type": _or_none(values.text),
    "properties": _properties,
    "limit": whole(1, LIMIT_MAX),
    "threshold": _or_none(_number),
    "accept_match": values.flag,
    "strategies": _strategies,
    "not_found_delay": _delay,
}
