"""Limits the values of metric labels: error codes, HTTP methods and names from users."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

OTHER_LABEL: Final = "other"
MAX_LABEL_VALUES = 100  # values per label that are not defined here
# The error codes of Tidemill itself; handlers define others.
BUILT_IN_ERROR_CODES: Final = frozenset(
    {"error", "exhausted", "exit", "invalid", "invalid_result", "memory", "not_found", "permanent", "poison", "timeout"}
    | {"service_error", "service_timeout", "service_unreachable", "service_denied", "service_refused", "invalid_answer"}
)
# Codes of handlers for throttled calls; the metrics count them as one code.
THROTTLE_ERROR_CODES: Final = frozenset({"throttled", "429", "too_many_requests", "rate_limit", "rate_limited"})
HTTP_METHOD_LABELS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class BoundedLabel:
    """Keeps the first MAX_LABEL_VALUES values of a label, or only known ones; all others become ``other``."""

    def __init__(self, known: frozenset[str] | None = None) -> None:
        self._open = known is None
        self._known = set(known or ())

    def __call__(self, word: object) -> str:
        text = str(word)
        if text in self._known:
            return text
        if self._open and len(self._known) < MAX_LABEL_VALUES:
            self._known.add(text)
            return text
        return OTHER_LABEL


def count_by_known_code(codes: Mapping[str, int], total: int) -> Counter[str]:
    """Return counts by built-in code; the rest of the total is counted as ``other``."""
    counts = Counter({code: n for code, n in codes.items() if code in BUILT_IN_ERROR_CODES})
    counts["throttled"] = count_throttled(codes)
    counts[OTHER_LABEL] = max(0, total - counts.total())
    return +counts


def filter_measured_codes(codes: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of the codes that the metrics distinguish."""
    return {
        code: n for code, n in codes.items() if code in BUILT_IN_ERROR_CODES or code.lower() in THROTTLE_ERROR_CODES
    }


def count_throttled(codes: Mapping[str, int]) -> int:
    return sum(n for code, n in codes.items() if code.lower() in THROTTLE_ERROR_CODES)
