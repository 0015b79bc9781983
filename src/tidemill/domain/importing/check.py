"""Rows into columns of text, with everything that is wrong with each row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

from tidemill.domain.importing.plan import ImportPlan
from tidemill.domain.values import FieldReader, Flaws, Problem
from tidemill.domain.values.columns import Texts
from tidemill.domain.values.field import Normalizer
from tidemill.domain.values.problem import shown

T = TypeVar("T")
NAME_MAX = 63  # characters of a strange field's name that an error shows


@dataclass(slots=True)
class Checked:
    """The fields of some rows, column by column, and what is wrong: by the row's place among them.

    ``absent`` are rows that do not name a field: if they are there already, it stays as it is.
    """

    columns: dict[str, Texts]
    count: int
    flaws: Flaws = field(default_factory=Flaws)
    absent: dict[str, set[int]] = field(default_factory=dict)

    def add(self, index: int, problem: Problem) -> None:
        self.flaws.add(index, problem)

    def tuples(self, fields: Sequence[str], rows: Sequence[int] | None = None) -> list[tuple[str | None, ...]]:
        """These fields of these rows, or of all."""
        columns: list[Sequence[str | None]] = [self.columns[name] for name in fields]
        if rows is not None:
            columns = [picked(column, rows) for column in columns]
        return list(zip(*columns, strict=True))


def picked(column: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    """The values of some rows."""
    if len(rows) < 2:  # noqa: PLR2004  an itemgetter of one gives no sequence
        return [column[index] for index in rows]
    return itemgetter(*rows)(column)  # type: ignore[no-any-return]


def reader_of(plan: ImportPlan, name: str, normalizers: Mapping[str, Normalizer] | None = None) -> FieldReader:
    """What reads a field's values as the plan says."""
    field = plan.resource.field(name)
    return FieldReader(
        field,
        normalizers,
        restores=plan.spreadsheet_safe,
        keeps_empty=plan.keep_empty,
        keeps_nothing=plan.keeps_nothing(field),
        documents=plan.documents,
    )


class Checker:
    """Checks rows against a plan."""

    def __init__(self, plan: ImportPlan, normalizers: Mapping[str, Normalizer] | None = None) -> None:
        resource = plan.resource
        self._sources = list(plan.in_order.items())
        self._readers = {name: reader_of(plan, name, normalizers) for _, name in self._sources}
        self._updates = plan.mode == "upsert"
        self._minds_absent = self._updates or plan.documents
        self._defaults = {
            name: default for name in plan.given if (default := plan.stands_in(resource.field(name))) is not None
        }
        self._known = {*plan.mapping, *plan.columns}  # columns that were seen, and have no field, were left out
        given = set(plan.given)
        self._conditions = [one for one in resource.conditions if one.field in given]

    def check(self, rows: Sequence[Any]) -> Checked:
        """``rows`` are decoded inputs: objects, or what is none."""
        checked = Checked({}, len(rows))
        objects = self._objects(rows, checked)
        for column, name in self._sources:
            values = _values(objects, column)
            checked.columns[name], flaws = self._readers[name].read(values)
            absent = _absent(objects, column) if self._minds_absent and None in values else set()
            if absent:
                checked.absent[name] = absent
                self._fill(name, checked.columns[name], absent)
            checked.flaws.take(flaws, but=absent if self._updates else ())
        for condition in self._conditions:
            self._check_condition(checked, condition)
        return checked

    def _objects(self, rows: Sequence[Any], checked: Checked) -> list[dict[str, Any]]:
        if set(map(type, rows)) <= {dict} and self._known.issuperset(set().union(*rows)):
            return list(rows)
        objects = []
        for index, row in enumerate(rows):
            if not isinstance(row, dict):
                checked.add(
                    index, Problem(None, "shape", "an object with a value for each field is wanted", shown(row))
                )
                row = {}  # noqa: PLW2901
            for name in row:
                if name not in self._known and not name.startswith("_"):
                    problem = Problem(
                        shown(name[:NAME_MAX]), "unknown_field", "there is no such field", shown(row[name])
                    )
                    checked.add(index, problem)
            objects.append(row)
        return objects

    def _fill(self, name: str, texts: Texts, absent: set[int]) -> None:
        """A default stands for what is not named, also where it does not for what is named and nothing."""
        if name in self._defaults:
            for index in absent:
                texts[index] = self._defaults[name]

    def _check_condition(self, checked: Checked, condition: Any) -> None:
        wanted, texts = set(condition.values), checked.columns[condition.field]
        for name in condition.needs:
            given, told = checked.columns.get(name), checked.flaws.of_field(name)
            for index, text in enumerate(texts):
                if text in wanted and (given is None or given[index] is None) and index not in told:
                    reason = f"needed where {condition.field} is {text}"
                    checked.add(index, Problem(name, "required", reason))


def _values(rows: list[dict[str, Any]], column: str) -> list[Any]:
    try:
        return [row[column] for row in rows]
    except KeyError:
        return [row.get(column) for row in rows]


def _absent(rows: list[dict[str, Any]], column: str) -> set[int]:
    return {index for index, row in enumerate(rows) if column not in row}
