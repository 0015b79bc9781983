"""Counting what became of items."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidemill.domain.decide import Verdict
from tidemill.domain.status import ItemStatus

_FAILED = ItemStatus.FAILED  # looked up once: a member of an enum costs more than the comparison


@dataclass(slots=True)
class Tally:
    """So many items, by what became of them; ``codes`` counts the failures per error code."""

    items: int = 0
    done: int = 0
    not_found: int = 0
    skipped: int = 0
    failed: int = 0
    retried: int = 0
    codes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> "Tally":
        statuses = [verdict.status for verdict in verdicts]  # list.count: a third of the time of a Counter of enums
        failed = statuses.count(_FAILED)
        return cls(
            items=len(verdicts),
            done=statuses.count(ItemStatus.DONE),
            not_found=statuses.count(ItemStatus.NOT_FOUND),
            skipped=statuses.count(ItemStatus.SKIPPED),
            failed=failed,
            retried=statuses.count(ItemStatus.RETRY_WAIT),
            codes=_codes(verdicts if failed == len(verdicts) else [v for v in verdicts if v.status is _FAILED]),
        )

    def add(self, other: "Tally") -> None:
        self.items += other.items
        self.done += other.done
        self.not_found += other.not_found
        self.skipped += other.skipped
        self.failed += other.failed
        self.retried += other.retried
        self.codes += other.codes


def retry_codes(verdicts: Iterable[Verdict]) -> Counter[str]:
    """Why items are tried again: error code -> items."""
    return _codes([verdict for verdict in verdicts if verdict.delay is not None])


def _codes(verdicts: Sequence[Verdict]) -> Counter[str]:
    return Counter([verdict.code or "error" for verdict in verdicts])
