"""The items of a handler that names a limiter, each at its line."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.domain.outcome import Wait
from tidemill.engine.limits.line import Line

if TYPE_CHECKING:
    from tidemill.engine.limits.process import ProcessLimits

KEY_MAX = 255
BAD_KEY = "limit_by must return a text: which member of the limiter an item counts against"


class Entrance:
    """Of one run: ``open`` it before the first item, ``close`` it after the last."""

    def __init__(self, limits: "ProcessLimits", handler: Handler) -> None:
        self._limits = limits
        self._name = handler.limiter or ""
        self._by = handler.limit_by
        self.line = limits.line(self._name)

    @property
    def by_member(self) -> bool:
        """Whether items stand in different lines, so that one need not wait for another."""
        return self._by is not None

    def line_of(self, item: Item) -> Line:
        """Whatever the user's function raises is the item's error."""
        return self.line if self._by is None else self._limits.line(self._name, self._key(item))

    def in_turn(self, items: Sequence[Item]) -> list[Item]:
        """Where there are several lines: the first of each, then the second of each: none holds up the others."""
        if self._by is None:
            return list(items)
        lines: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            try:
                key = "" if item.defect is not None else self._key(item)
            except Exception:  # noqa: BLE001  it is told when the item's turn comes
                key = ""
            lines[key].append(item)
        return [item for item in chain.from_iterable(zip_longest(*lines.values())) if item is not None]

    def open(self) -> None:
        if self._by is None:
            self.line.join()

    def close(self) -> None:
        if self._by is None:
            self.line.part()

    def dismiss(self, run: object) -> None:
        self._limits.dismiss(run)

    def _key(self, item: Item) -> str:
        return member_key(None if self._by is None else self._by(item), BAD_KEY)


def member_key(key: object, why_not: str) -> str:
    """A member's name, as PostgreSQL can hold it."""
    if not isinstance(key, str):
        raise TypeError(why_not)
    return key[:KEY_MAX].encode(errors="replace").decode().replace("\x00", "")


class Postponed(Wait):
    """What becomes of an item that would wait too long in a worker's hand: it comes again then, and is not charged."""

    def __init__(self, line: Line, seconds: float) -> None:
        member = f" for {line.key}" if line.key else ""
        super().__init__(f"limiter {line.name}{member} lets nobody begin before", after=seconds, code="limited")
        self.limiter = None if line.key else line.name  # that lets nobody begin at all, if it is not a member only
