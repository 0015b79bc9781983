"""What is wrong with rows. Those that break one rule are kept together: a file may be bad in every row."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tidemill.domain.decide import CODE_MAX, REASON_MAX, clean
from tidemill.domain.values.problem import Problem

ERRORS_MAX = 50  # of one row, that are kept


@dataclass(frozen=True, slots=True)
class Flaw:
    """A rule that some rows break; ``values`` are theirs, as errors show them, by the row's place."""

    field: str | None
    code: str
    reason: str
    values: dict[int, str | None]

    @property
    def name(self) -> str:
        """What failures are grouped by: the field and the rule it breaks."""
        return self.code if self.field is None else f"{self.field}.{self.code}"

    def told(self) -> Iterable[tuple[int, dict[str, Any]]]:
        """Of each row."""
        alike = {"code": clean(self.name, CODE_MAX), "reason": clean(self.reason, REASON_MAX)}
        if self.field is not None:
            alike["field"] = self.field
        return [
            (index, {**alike} if value is None else {**alike, "value": value}) for index, value in self.values.items()
        ]


class Flaws:
    """The flaws of some rows, in the order in which they were found; ``rows`` are the places of those that have one."""

    def __init__(self) -> None:
        self.found: list[Flaw] = []
        self.rows: set[int] = set()

    def add(self, index: int, problem: Problem) -> None:
        last = self.found[-1] if self.found else None
        rule = (problem.field, problem.code, problem.reason)
        if last is None or (last.field, last.code, last.reason) != rule or index in last.values:
            self.add_all(Flaw(*rule, {index: problem.value}))
        else:
            last.values[index] = problem.value
            self.rows.add(index)

    def add_all(self, flaw: Flaw) -> None:
        self.found.append(flaw)
        self.rows.update(flaw.values)

    def take(self, others: "Flaws", *, but: Collection[int] = ()) -> None:
        """Those of other flaws too, except of some rows."""
        for flaw in others.found:
            values = {index: value for index, value in flaw.values.items() if index not in but} if but else flaw.values
            if values:
                self.add_all(Flaw(flaw.field, flaw.code, flaw.reason, values))

    def of_field(self, name: str) -> set[int]:
        """Rows with a flaw in a field."""
        return set[int]().union(*(flaw.values for flaw in self.found if flaw.field == name))

    def of_rows(self, rows: Collection[int]) -> dict[int, list[Flaw]]:
        found: dict[int, list[Flaw]] = {index: [] for index in rows}
        for flaw in self.found:
            for index in flaw.values.keys() & found.keys():
                found[index].append(flaw)
        return found

    def told(self) -> dict[int, dict[str, Any]]:
        """What is kept of each row: its first flaw, and all of them if there are more."""
        found: dict[int, dict[str, Any]] = {}
        for flaw in self.found:
            for index, one in flaw.told():
                first = found.setdefault(index, one)
                if first is not one:
                    errors = first.setdefault("errors", [dict(first)])
                    if len(errors) < ERRORS_MAX:
                        errors.append(one)
        return found
