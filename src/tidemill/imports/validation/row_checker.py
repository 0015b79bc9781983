"""Checks rows against a plan, and converts them to columns of text with all errors of each row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

from tidemill.core.json_input import JsonObject
from tidemill.imports.import_plan import ImportPlan
from tidemill.imports.validation.field_reader import FieldReader, Normalizer
from tidemill.imports.validation.row_errors import RowErrorDetail, RowErrors
from tidemill.tables.values.column_texts import ColumnTexts, clean_value_for_error
from tidemill.tables.values.value_formats import get_value_format

T = TypeVar("T")
ERROR_FIELD_NAME_MAX_CHARS = 63  # an error truncates the name of an unknown field


@dataclass(slots=True)
class CheckedRows:
    """The fields of some rows as columns of text, and the errors by row index.

    ``rows_without_field`` has the rows that do not contain a field. An upsert keeps its value in existing rows.
    """

    columns: dict[str, ColumnTexts]
    count: int
    errors: RowErrors = field(default_factory=RowErrors)
    rows_without_field: dict[str, set[int]] = field(default_factory=dict)

    def add_error(self, index: int, problem: RowErrorDetail) -> None:
        self.errors.add(index, problem)

    def get_values_of_rows(
        self, fields: Sequence[str], rows: Sequence[int] | None = None
    ) -> list[tuple[str | None, ...]]:
        """Return the values of these fields, for these rows or for all."""
        columns: list[Sequence[str | None]] = [self.columns[name] for name in fields]
        if rows is not None:
            columns = [pick_row_values(column, rows) for column in columns]
        return list(zip(*columns, strict=True))


def pick_row_values(column: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    """Return the values of some rows."""
    if len(rows) < 2:  # noqa: PLR2004  itemgetter with one index returns no sequence
        return [column[index] for index in rows]
    return itemgetter(*rows)(column)  # type: ignore[no-any-return]


def make_field_reader(plan: ImportPlan, name: str, normalizers: Mapping[str, Normalizer] | None = None) -> FieldReader:
    """Return the reader of a field with the options of the plan."""
    field = plan.resource.get_field(name)
    return FieldReader(
        field,
        normalizers,
        translations=plan.translations.get(name),
        unescape_formulas=plan.spreadsheet_safe,
        keep_empty=plan.keep_empty,
        keep_null=plan.keeps_null(field),
        texts_are_json=plan.documents,
        reject_ambiguous=plan.rejects_ambiguous_texts(field),
        value_format=get_value_format(plan.formats[name]) if name in plan.formats else None,
    )


class RowChecker:
    """Checks rows against a plan."""

    def __init__(self, plan: ImportPlan, normalizers: Mapping[str, Normalizer] | None = None) -> None:
        resource = plan.resource
        self._sources = list(plan.ordered_mapping.items())
        self._readers = {name: make_field_reader(plan, name, normalizers) for _, name in self._sources}
        self._updates = plan.mode == "upsert"
        self._tracks_absent_fields = self._updates or plan.documents
        self._defaults = {
            name: default
            for name in plan.mapped_fields
            if (default := plan.get_default_if_omitted(resource.get_field(name))) is not None
        }
        self._recognized_columns = {*plan.mapping, *plan.columns}  # columns without a field are ignored
        given = set(plan.mapped_fields)
        self._conditions = [one for one in resource.conditions if one.field in given]

    def check_rows(self, rows: Sequence[Any]) -> CheckedRows:
        """Check decoded inputs, which should be objects, and return their fields and errors."""
        checked = CheckedRows({}, len(rows))
        objects = self._convert_rows_to_objects(rows, checked)
        for column, name in self._sources:
            values = _get_column_values(objects, column)
            checked.columns[name], flaws = self._readers[name].validate_and_convert_values(values)
            absent = _find_rows_without(objects, column) if self._tracks_absent_fields and None in values else set()
            if absent:
                checked.rows_without_field[name] = absent
                self._fill_defaults(name, checked.columns[name], absent)
            checked.errors.merge(flaws, except_rows=absent if self._updates else ())
        for condition in self._conditions:
            self._check_conditional_requirement(checked, condition)
        return checked

    def _convert_rows_to_objects(self, rows: Sequence[Any], checked: CheckedRows) -> list[JsonObject]:
        if set(map(type, rows)) <= {dict} and self._recognized_columns.issuperset(set().union(*rows)):
            return list(rows)
        objects = []
        for index, row in enumerate(rows):
            if not isinstance(row, dict):
                checked.add_error(
                    index,
                    RowErrorDetail(
                        None, "shape", "Row must be an object with a value for each field", clean_value_for_error(row)
                    ),
                )
                row = {}  # noqa: PLW2901
            for name in row:
                if name not in self._recognized_columns and not name.startswith("_"):
                    problem = RowErrorDetail(
                        clean_value_for_error(name[:ERROR_FIELD_NAME_MAX_CHARS]),
                        "unknown_field",
                        "unknown field",
                        clean_value_for_error(row[name]),
                    )
                    checked.add_error(index, problem)
            objects.append(row)
        return objects

    def _fill_defaults(self, name: str, texts: ColumnTexts, absent: set[int]) -> None:
        """Set the default of a field in rows that do not contain it, where null would stay NULL."""
        if name in self._defaults:
            for index in absent:
                texts[index] = self._defaults[name]

    def _check_conditional_requirement(self, checked: CheckedRows, condition: Any) -> None:
        wanted, texts = set(condition.values), checked.columns[condition.field]
        for name in condition.needs:
            given, reported = checked.columns.get(name), checked.errors.find_rows_with_error_in_field(name)
            for index, text in enumerate(texts):
                if text in wanted and (given is None or given[index] is None) and index not in reported:
                    reason = f'is required when {condition.field} is "{text}"'
                    checked.add_error(index, RowErrorDetail(name, "required", reason))


def _get_column_values(rows: list[JsonObject], column: str) -> list[Any]:
    try:
        return [row[column] for row in rows]
    except KeyError:
        return [row.get(column) for row in rows]


def _find_rows_without(rows: list[JsonObject], column: str) -> set[int]:
    return {index for index, row in enumerate(rows) if column not in row}
