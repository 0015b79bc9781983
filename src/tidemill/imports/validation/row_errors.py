"""What is wrong with rows. Those that break one rule are kept together: a file may be bad in every row."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tidemill.core.decide import ERROR_CODE_MAX_CHARS, ERROR_REASON_MAX_CHARS, clean_text
from tidemill.core.outcome import ErrorDetails

ROW_ERRORS_MAX = 50  # of one row, that are kept


@dataclass(frozen=True, slots=True)
class RowErrorDetail:
    """``code`` names the rule, ``reason`` says what would have been right."""

    field: str | None
    code: str
    reason: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class RowErrorGroup:
    """A rule that some rows break; ``values`` are theirs, as errors show them, by the row's place."""

    field: str | None
    code: str
    reason: str
    values_by_row: dict[int, str | None]

    @property
    def qualified_code(self) -> str:
        """What failures are grouped by: the field and the rule it breaks."""
        return self.code if self.field is None else f"{self.field}.{self.code}"

    def build_details(self) -> Iterable[tuple[int, ErrorDetails]]:
        """Of each row."""
        alike: ErrorDetails = {
            "code": clean_text(self.qualified_code, ERROR_CODE_MAX_CHARS),
            "reason": clean_text(self.reason, ERROR_REASON_MAX_CHARS),
        }
        if self.field is not None:
            alike["field"] = self.field
        return [
            (index, {**alike} if value is None else {**alike, "value": value})
            for index, value in self.values_by_row.items()
        ]


class RowErrors:
    """The flaws of some rows, in the order in which they were found; ``rows`` are the places of those that have one."""

    def __init__(self) -> None:
        self.groups: list[RowErrorGroup] = []
        self.bad_rows: set[int] = set()

    def add(self, index: int, problem: RowErrorDetail) -> None:
        last = self.groups[-1] if self.groups else None
        rule = (problem.field, problem.code, problem.reason)
        if last is None or (last.field, last.code, last.reason) != rule or index in last.values_by_row:
            self.add_group(RowErrorGroup(*rule, {index: problem.value}))
        else:
            last.values_by_row[index] = problem.value
            self.bad_rows.add(index)

    def add_group(self, flaw: RowErrorGroup) -> None:
        self.groups.append(flaw)
        self.bad_rows.update(flaw.values_by_row)

    def merge(self, others: "RowErrors", *, except_rows: Collection[int] = ()) -> None:
        """Those of other flaws too, except of some rows."""
        for flaw in others.groups:
            values = (
                {index: value for index, value in flaw.values_by_row.items() if index not in except_rows}
                if except_rows
                else flaw.values_by_row
            )
            if values:
                self.add_group(RowErrorGroup(flaw.field, flaw.code, flaw.reason, values))

    def find_rows_of_field(self, name: str) -> set[int]:
        """Rows with a flaw in a field."""
        return set[int]().union(*(flaw.values_by_row for flaw in self.groups if flaw.field == name))

    def group_by_row(self, rows: Collection[int]) -> dict[int, list[RowErrorGroup]]:
        found: dict[int, list[RowErrorGroup]] = {index: [] for index in rows}
        for flaw in self.groups:
            for index in flaw.values_by_row.keys() & found.keys():
                found[index].append(flaw)
        return found

    def build_details(self) -> dict[int, ErrorDetails]:
        """The error that is stored of each row: its first one, with a list of all if there are more."""
        found: dict[int, ErrorDetails] = {}
        for flaw in self.groups:
            for index, one in flaw.build_details():
                first = found.setdefault(index, one)
                if first is not one:
                    errors = first.setdefault("errors", [first.copy()])
                    if len(errors) < ROW_ERRORS_MAX:
                        errors.append(one)
        return found
