"""Labels of metrics are few words, whatever users write: a label per job or per message would drown Prometheus."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

OTHER_LABEL: Final = "other"
MAX_LABEL_VALUES = 100  # words of a label that comes from outside this file

# Every code that Tidemill itself gives an error; handlers make others.
BUILT_IN_ERROR_CODES: Final = frozenset(
    {"error", "exhausted", "exit", "invalid", "invalid_result", "memory", "not_found", "permanent", "poison", "timeout"}
    | {"service_error", "service_timeout", "service_unreachable", "service_denied", "service_refused", "invalid_answer"}
)
# What handlers call it when somebody asks them to slow down: one code here.
THROTTLE_ERROR_CODES: Final = frozenset({"throttled", "429", "too_many_requests", "rate_limit", "rate_limited"})
HTTP_METHOD_LABELS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class BoundedLabel:
    """The first so many words that come are kept; the rest are ``other``."""

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


def count_by_code(codes: Mapping[str, int], total: int) -> Counter[str]:
    """Counts by our own codes; whatever else makes up the total is ``other``."""
    counts = Counter({code: n for code, n in codes.items() if code in BUILT_IN_ERROR_CODES})
    counts["throttled"] = count_throttled(codes)
    counts[OTHER_LABEL] = max(0, total - counts.total())
    return +counts


def filter_measured_codes(codes: Mapping[str, int]) -> dict[str, int]:
    """Without the codes that mean nothing here."""
    return {
        code: n for code, n in codes.items() if code in BUILT_IN_ERROR_CODES or code.lower() in THROTTLE_ERROR_CODES
    }


def count_throttled(codes: Mapping[str, int]) -> int:
    return sum(n for code, n in codes.items() if code.lower() in THROTTLE_ERROR_CODES)
