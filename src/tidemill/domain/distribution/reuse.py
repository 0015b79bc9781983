"""Whether a file that was made before is used again."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reuse:
    """``days``: what is younger than that may still change, so its file is made anew."""

    enabled: bool = True
    days: int = 7


@dataclass(frozen=True, slots=True)
class Artifact:
    """The newest file of an input, as the registry knows it; ``format`` is its ending, such as ``csv.gz``."""

    path: str
    rows: int
    size: int
    sha256: str
    format: str


def decide(
    *, enabled: bool, artifact: Artifact | None, effective_date: date | None, today: date, days: int
) -> Literal["generate", "reuse"]:
    """Of an input without a date nobody can say that it will not change any more: it is generated."""
    if not enabled:
        return "generate"
    if artifact is None:
        return "generate"
    if effective_date is None or effective_date > today - timedelta(days=days):
        return "generate"
    return "reuse"
