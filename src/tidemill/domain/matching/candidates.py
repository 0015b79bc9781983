"""What a service proposes for a row, and whether one of its candidates will do."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.domain.matching.request import MatchRequest
from tidemill.domain.matching.strategies import Query

ID_MAX, NAME_MAX, TYPES_MAX = 500, 500, 10


@dataclass(frozen=True, slots=True)
class Candidate:
    id: str
    name: str
    score: float | None
    match: bool
    type: str | None

    @property
    def told(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "score": self.score, "match": self.match, "type": self.type}


def read_candidates(given: Any, limit: int) -> list[Candidate]:
    """The best first, and not more than were asked for; ValueError says what is wrong with them."""
    if not isinstance(given, list):
        raise ValueError("its candidates are no list")  # noqa: TRY004  as for every other mistake
    found = [_candidate(one) for one in given[: 10 * limit]]
    return sorted(found, key=lambda one: -math.inf if one.score is None else one.score, reverse=True)[:limit]


def judge(candidates: Sequence[Candidate], request: MatchRequest) -> Candidate | None:
    """The one that will do: what the service is sure of, if that counts, else the best at or above the threshold."""
    if request.accept_match:
        sure = [one for one in candidates if one.match]
        if len(sure) == 1:
            return sure[0]
    best = candidates[0] if candidates else None
    if best is None or request.threshold is None or best.score is None or best.score < request.threshold:
        return None
    return best


def result_of(chosen: Candidate | None, candidates: Sequence[Candidate], query: Query) -> dict[str, Any]:
    """In the grid's columns. Nobody's id stands in the row of a match that was not made."""
    told: dict[str, Any] = {"id": None, "name": None, "score": None, "match": False, "type": None}
    if chosen is not None:
        told = chosen.told
    elif candidates:
        told["score"] = candidates[0].score
    listed = [one.told for one in candidates]
    return told | {"match": chosen is not None, "query": query.text, "strategy": query.strategy, "candidates": listed}


def _candidate(given: Any) -> Candidate:
    if not isinstance(given, Mapping):
        raise ValueError("a candidate is no object")  # noqa: TRY004  as above
    id_ = given.get("id")
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    if not isinstance(id_, str) or not 0 < len(id_) <= ID_MAX:
        raise ValueError("a candidate has no id")
    return Candidate(id_, _name(given.get("name")) or id_, _score(given), given.get("match") is True, _type(given))


def _score(given: Mapping[str, Any]) -> float | None:
    score = given.get("score")
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ValueError(f"the score of a candidate is {type(score).__name__}, not a number")  # noqa: TRY004
    if not abs(score) <= sys.float_info.max:  # an integer may be larger than any of those
        raise ValueError("the score of a candidate is not a finite number")
    return float(score)


def _name(given: Any) -> str:
    """A text; in the newer protocol, a list of texts in several languages."""
    if isinstance(given, list) and given:
        given = given[0]
    if isinstance(given, Mapping):
        given = given.get("str", given.get("name"))
    return given[:NAME_MAX] if isinstance(given, str) else ""


def _type(given: Mapping[str, Any]) -> str | None:
    """Names, or ids where types have no names."""
    types = given.get("type")
    several = types if isinstance(types, list) else [types]
    named = [_name(one) or _name(one.get("id") if isinstance(one, Mapping) else None) for one in several[:TYPES_MAX]]
    return ", ".join(name for name in named if name) or None
