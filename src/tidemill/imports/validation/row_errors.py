"""Errors of rows, grouped by rule to save memory when every row of a file is invalid."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tidemill.core.decide import ERROR_CODE_MAX_CHARS, ERROR_REASON_MAX_CHARS, clean_and_truncate_text
from tidemill.core.outcome import ErrorDetails

ROW_ERRORS_MAX = 50  # stored errors of one row


@dataclass(frozen=True, slots=True)
class RowErrorDetail:
    """One error of a row: ``code`` is the rule, ``reason`` describes the valid values."""

    field: str | None
    code: str
    reason: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class RowErrorGroup:
    """One error of several rows; ``values_by_row`` has the shown value of each row index."""

    field: str | None
    code: str
    reason: str
    values_by_row: dict[int, str | None]

    @property
    def qualified_code(self) -> str:
        """The field and the rule, by which failed rows are counted."""
        return self.code if self.field is None else f"{self.field}.{self.code}"

    def iter_details_by_row(self) -> Iterable[tuple[int, ErrorDetails]]:
        """Return the index of each row and its error as it is stored."""
        common: ErrorDetails = {
            "code": clean_and_truncate_text(self.qualified_code, ERROR_CODE_MAX_CHARS),
            "reason": clean_and_truncate_text(self.reason, ERROR_REASON_MAX_CHARS),
        }
        if self.field is not None:
            common["field"] = self.field
        return [
            (index, {**common} if value is None else {**common, "value": value})
            for index, value in self.values_by_row.items()
        ]


class RowErrors:
    """The errors of some rows in the order of the checks; ``bad_rows`` are the indexes of rows with an error."""

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
        """Add all errors of ``others``, except those of some rows."""
        for flaw in others.groups:
            values = (
                {index: value for index, value in flaw.values_by_row.items() if index not in except_rows}
                if except_rows
                else flaw.values_by_row
            )
            if values:
                self.add_group(RowErrorGroup(flaw.field, flaw.code, flaw.reason, values))

    def find_rows_with_error_in_field(self, name: str) -> set[int]:
        """Return the rows with an error in a field."""
        return set[int]().union(*(flaw.values_by_row for flaw in self.groups if flaw.field == name))

    def group_by_row(self, rows: Collection[int]) -> dict[int, list[RowErrorGroup]]:
        groups: dict[int, list[RowErrorGroup]] = {index: [] for index in rows}
        for flaw in self.groups:
            for index in flaw.values_by_row.keys() & groups.keys():
                groups[index].append(flaw)
        return groups

    def build_details_by_row(self) -> dict[int, ErrorDetails]:
        """Return the stored error of each row: its first error, with a list of all errors if there are several."""
        details: dict[int, ErrorDetails] = {}
        for flaw in self.groups:
            for index, one in flaw.iter_details_by_row():
                first = details.setdefault(index, one)
                if first is not one:
                    errors = first.setdefault("errors", [first.copy()])
                    if len(errors) < ROW_ERRORS_MAX:
                        errors.append(one)
        return details
