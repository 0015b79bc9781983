"""From what a set-based handler said of a whole batch to verdicts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.domain.batch import Lease
from tidemill.domain.decide import Verdict, from_defect
from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.domain.outcome import Done, Exceptions, Fail, Outcome, Retry, Wait
from tidemill.engine.columns import JobColumns
from tidemill.engine.verdicts import failures_of, outcome_of, verdict_of

_DONE = Done()


def hear(values: Any, count: int) -> Exceptions:
    """What a handler gave back for so many items. Raises the one outcome of all, unless they are done."""
    if values is None:
        return Exceptions()
    if isinstance(values, Exceptions):
        return values
    if isinstance(values, Done):
        return all_of(values, count)
    if isinstance(values, Outcome):
        raise values
    if not isinstance(values, list | tuple) or len(values) != count:
        return all_of(Fail(_wrong_shape(values, count), code="invalid_result"), count)
    return Exceptions(dict(enumerate(map(outcome_of, values))))


def all_of(outcome: Outcome, count: int) -> Exceptions:
    return Exceptions(dict.fromkeys(range(count), outcome))


@dataclass(frozen=True, slots=True)
class Decided:
    """What becomes of a batch. ``plain`` more of its items are done and leave no trace; ``said`` is of all together."""

    verdicts: Sequence[Verdict] = ()
    plain: int = 0
    said: Outcome = _DONE  # a refusal if there was one


class Decider:
    """Decides of the items of one batch."""

    def __init__(self, lease: Lease, handler: Handler, columns: JobColumns) -> None:
        self._handler = handler
        self._columns = columns
        self._keeps_plain = not lease.sparse or lease.is_list

    def decide(self, items: Sequence[Item], said: Exceptions, seconds: float, spacing: float) -> Decided:
        """``said`` is of those items that have no defect, which are all that a handler gets to see."""
        good = [item for item in items if item.defect is None]
        each_ms = round(seconds * 1000 / max(len(items), 1))
        failed = failures_of([good[place] for place in said.failed], list(said.failed.values()), each_ms)
        others = [
            verdict_of(item, outcome, self._handler, each_ms, self._columns, spacing)
            for item, outcome in self._others(items, good, said)
        ]
        plain = 0 if self._keeps_plain else len(good) - len(said) - len(said.failed)
        retries = [one for one in said.values() if isinstance(one, Retry) and not isinstance(one, Wait)]
        refused = max(retries, key=lambda retry: bool(retry.throttled), default=_DONE)
        return Decided(failed + others, plain, refused)

    def _others(self, items: Sequence[Item], good: list[Item], said: Exceptions) -> Iterator[tuple[Item, Outcome]]:
        for place, outcome in said.items():
            yield good[place], outcome
        if self._keeps_plain:
            for place, item in enumerate(good):
                if place not in said and place not in said.failed:
                    yield item, _DONE
        if len(good) < len(items):
            for item in items:
                if item.defect is not None:
                    yield item, from_defect(item.defect)


def _wrong_shape(values: object, expected: int) -> str:
    got = f"{len(values)} outcomes" if isinstance(values, list | tuple) else f"a {type(values).__name__}"
    return f"the batch handler returned {got} for {expected} items; it must return None or a list of as many"
