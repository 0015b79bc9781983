"""Checks rows against a plan, and converts them to columns of text with all errors of each row."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add, itemgetter
from typing import Any, TypeVar

from tidemill.core.errors import InvalidInput
from tidemill.core.json_input import JsonObject
from tidemill.imports.import_plan import ImportPlan, RuleSource, compile_rule_of_plan
from tidemill.imports.validation.field_reader import FieldReader, Normalizer, convert_to_file_texts
from tidemill.imports.validation.row_errors import RowErrorDetail, RowErrors
from tidemill.imports.validation.rule_evaluation import RuleFailure, to_texts
from tidemill.tables.resource import Field, Resource
from tidemill.tables.row_rules import RowRule, parse_computed_rule, parse_skip_rule
from tidemill.tables.values.column_texts import ColumnTexts, clean_value_for_error
from tidemill.tables.values.value_formats import get_value_format

T = TypeVar("T")
COMPUTED_ERROR_CODE = "computed"
ROW_RESULTS_MAX_CHARS = 20_000  # of all computed values of a row, besides the values that the rules read
_ROW_TOO_LONG = RuleFailure(
    f"the computed values of the row have more than {ROW_RESULTS_MAX_CHARS:,} characters besides those of the file"
)
ERROR_FIELD_NAME_MAX_CHARS = 63  # an error truncates the name of an unknown field


@dataclass(slots=True)
class CheckedRows:
    """The fields of some rows as columns of text, and the errors by row index.

    ``rows_without_field`` has the rows that do not contain a field. An upsert keeps its value in existing rows.
    """

    columns: dict[str, ColumnTexts]
    count: int
    errors: RowErrors = field(default_factory=RowErrors)
    skipped: dict[int, str] = field(default_factory=dict)  # row -> the reason, a rule of the import; it has no errors
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
    field = plan.resource.get_input_field(name)
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
        self._sources = [(column, name) for column, name in plan.ordered_mapping.items() if name not in plan.computed]
        self._readers = {name: make_field_reader(plan, name, normalizers) for _, name in self._sources}
        self._rules = RowRuleEvaluator(plan, normalizers) if plan.computed or plan.skip else None
        self._own_columns = {name: column for column, name in plan.mapping.items() if name in plan.computed}
        self._constants = convert_constants(resource, plan.constants, normalizers)
        self._updates = plan.mode == "upsert"
        self._tracks_absent_fields = self._updates or plan.documents
        self._defaults = {
            name: default
            for name in plan.mapped_fields
            if (default := plan.get_default_if_omitted(resource.get_input_field(name))) is not None
        }
        self._recognized_columns = {*plan.mapping, *plan.columns}  # columns without a field are ignored
        self._fields_set_by_rules = {*plan.constants, *plan.computed}
        given = set(plan.mapped_fields)
        self._conditions = [one for one in resource.conditions if one.field in given]

    @property
    def computed_fields(self) -> list[str]:
        return [] if self._rules is None else self._rules.computed_fields

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
        for name, text in self._constants.items():
            checked.columns[name] = [text] * checked.count
        if self._rules is not None:
            self._apply_rules(self._rules, objects, checked)
        for condition in self._conditions:
            self._check_conditional_requirement(checked, condition)
        if checked.skipped:  # a row that is no object has no values, and fails
            checked.skipped = {index: why for index, why in checked.skipped.items() if isinstance(rows[index], dict)}
            errors, checked.errors = checked.errors, RowErrors()
            checked.errors.merge(errors, except_rows=checked.skipped)
        return checked

    def _apply_rules(self, rules: "RowRuleEvaluator", objects: list[JsonObject], checked: CheckedRows) -> None:
        tracked = self._own_columns.items() if self._tracks_absent_fields else ()
        absent_rows = {name: _find_rows_without(objects, column) for name, column in tracked}
        evaluated = rules.evaluate(
            lambda column: _get_column_values(objects, column),
            checked.count,
            absent_rows=absent_rows,
        )
        checked.skipped = evaluated.skipped
        checked.columns |= evaluated.columns
        checked.errors.merge(evaluated.errors)
        for name, absent in evaluated.rows_without_field.items():
            checked.rows_without_field[name] = absent
            self._fill_defaults(name, evaluated.columns[name], absent)

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
                    is_set = name in self._fields_set_by_rules
                    problem = RowErrorDetail(
                        clean_value_for_error(name[:ERROR_FIELD_NAME_MAX_CHARS]),
                        "unknown_field",
                        "is set by the import itself; remove it from the row" if is_set else "unknown field",
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


@dataclass(frozen=True, slots=True)
class EvaluatedRules:
    """The skipped rows with the reasons, the computed columns, and the errors of rows that cannot be computed."""

    skipped: dict[int, str]
    columns: dict[str, ColumnTexts]
    errors: RowErrors
    rows_without_field: dict[str, set[int]] = field(default_factory=dict)  # rows without the column and a value


class RowRuleEvaluator:
    """Evaluates the rules of a plan: which rows are skipped, and the computed columns."""

    def __init__(
        self,
        plan: ImportPlan,
        normalizers: Mapping[str, Normalizer] | None = None,
        fields: Collection[str] | None = None,
    ) -> None:
        """``fields``: the computed fields to evaluate; all by default."""
        computed = {name: text for name, text in plan.computed.items() if fields is None or name in fields}
        rules = {name: parse_computed_rule(text) for name, text in computed.items()}
        skip = [parse_skip_rule(text) for text in plan.skip]
        self._skip = [(rule.text, compile_rule_of_plan(plan, rule)) for rule in skip]
        self._computed = {name: compile_rule_of_plan(plan, rule, name) for name, rule in rules.items()}
        self._sources = {
            name: plan.find_rule_source(name) or RuleSource()
            for rule in (*skip, *rules.values())
            for name in rule.names
        }
        self._readers = {
            source.column: None if source.field is None else make_field_reader(plan, source.field.name, normalizers)
            for source in self._sources.values()
            if source.column is not None
        }
        self._constants = {
            name: _convert_constant_for_rules(source.field, source.constant, normalizers)
            for name, source in self._sources.items()
            if source.field is not None and source.constant is not None
        }
        self._updates = plan.mode == "upsert"
        self._unescape_formulas = plan.spreadsheet_safe
        self._results = {
            name: _make_result_reader(plan, name, normalizers, self._reads_sensitive_field(rule))
            for name, rule in rules.items()
        }
        self._own_columns = {
            source.column: source.field.name
            for source in self._sources.values()
            if source.column is not None and source.field is not None and source.field.name in computed
        }

    @property
    def columns(self) -> list[str]:
        """The columns of the file that the rules read."""
        return list(self._readers)

    @property
    def computed_fields(self) -> list[str]:
        return list(self._computed)

    def _reads_sensitive_field(self, rule: RowRule) -> bool:
        fields = [self._sources[name].field for name in rule.names]
        return any(field is not None and field.sensitive for field in fields)

    def evaluate(
        self,
        get_values: Callable[[str], list[Any]],
        count: int,
        *,
        absent_rows: Mapping[str, set[int]] | None = None,
        keys_only: bool = False,
    ) -> EvaluatedRules:
        """Evaluate the rules for some rows.

        Args:
            get_values: Returns the values of a column, None for missing ones.
            count: The number of rows.
            absent_rows: Computed field -> rows that do not contain its own column.
            keys_only: Convert the computed values as those of key fields, and check none.
        """
        errors = RowErrors()
        inputs, unreadable = self._read_inputs(get_values, count, errors)
        skipped: dict[int, str] = {}
        for text, evaluate in self._skip:
            skip_reason = f"skipped by the rule: {text}"
            for index, cell in enumerate(evaluate(inputs, count)):
                if cell is True:
                    skipped.setdefault(index, skip_reason)
                elif cell is not False:
                    reason = f"cannot be checked by the rule to skip rows: {text}: {cell.reason}"
                    errors.add(index, RowErrorDetail(None, COMPUTED_ERROR_CODE, reason))
        columns: dict[str, ColumnTexts] = {}
        rows_without_field: dict[str, set[int]] = {}
        limit = _RowLengthLimit(inputs, count)
        for name, evaluate in self._computed.items():
            cells = limit.add_and_reject(evaluate(inputs, count))
            if keys_only:
                columns[name] = self._results[name].convert_key_values(to_texts(cells))
            else:
                absent = {index for index in (absent_rows or {}).get(name, ()) if cells[index] is None}
                columns[name] = self._convert_results(name, cells, errors, unreadable, absent)
                if absent:
                    rows_without_field[name] = absent
        return EvaluatedRules(skipped, columns, errors, rows_without_field)

    def _read_inputs(
        self, get_values: Callable[[str], list[Any]], count: int, errors: RowErrors
    ) -> tuple[dict[str, ColumnTexts], set[int]]:
        """Return the texts of each name, and the rows with an invalid input, whose error is reported with its field."""
        texts: dict[str | None, ColumnTexts] = {}
        unreadable: set[int] = set()
        for column, reader in self._readers.items():
            values = get_values(column)
            if reader is None:
                texts[column] = convert_to_file_texts(values, unescape_formulas=self._unescape_formulas)
                continue
            texts[column], flaws = reader.read_rule_inputs(values)
            unreadable |= flaws.bad_rows
            if column in self._own_columns:  # no other check reads this column
                errors.merge(flaws)
        inputs = {
            name: texts[source.column] if source.column is not None else [self._constants.get(name)] * count
            for name, source in self._sources.items()
        }
        return inputs, unreadable

    def _convert_results(
        self, name: str, cells: list[Any], errors: RowErrors, unreadable: set[int], absent: set[int]
    ) -> ColumnTexts:
        reported = errors.find_rows_with_error_in_field(name)
        if self._updates:  # an upsert keeps the value of existing rows
            reported |= absent
        for index, cell in enumerate(cells):
            if type(cell) is RuleFailure:
                if index not in unreadable:
                    reason = f"cannot be computed: {cell.reason}"
                    errors.add(index, RowErrorDetail(name, COMPUTED_ERROR_CODE, reason))
                reported.add(index)
        converted, flaws = self._results[name].validate_and_convert_values(to_texts(cells))
        errors.merge(flaws, except_rows=reported)
        return converted


class _RowLengthLimit:
    """Limits the characters of the computed values of a row, because a short rule can return a long text."""

    def __init__(self, inputs: Mapping[str, ColumnTexts], count: int) -> None:
        self._inputs = inputs
        self._lengths = [0] * count

    def add_and_reject(self, cells: list[Any]) -> list[Any]:
        """Return the cells of one field, with failures instead of those that make their rows too long."""
        lengths = [len(cell) if isinstance(cell, str) else 0 for cell in cells]
        totals = list(map(add, self._lengths, lengths))
        if max(totals, default=0) > ROW_RESULTS_MAX_CHARS:
            cells = list(cells)
            for index, total in enumerate(totals):
                if total > ROW_RESULTS_MAX_CHARS and total > ROW_RESULTS_MAX_CHARS + self._count_input(index):
                    cells[index], totals[index] = _ROW_TOO_LONG, self._lengths[index]
        self._lengths = totals
        return cells

    def _count_input(self, index: int) -> int:
        return sum(len(texts[index] or "") for texts in self._inputs.values())


def _make_result_reader(
    plan: ImportPlan, name: str, normalizers: Mapping[str, Normalizer] | None, is_sensitive: bool
) -> FieldReader:
    """Return the reader of computed values, which are in plain notation. Errors hide values from sensitive fields."""
    field = plan.resource.get_field(name)
    field = replace(field, sensitive=field.sensitive or is_sensitive)
    return FieldReader(field, normalizers, keep_empty=plan.keep_empty, keep_null=plan.keeps_null(field))


def _convert_constant_for_rules(
    field: Field, constant: str, normalizers: Mapping[str, Normalizer] | None
) -> str | None:
    """Return the value that a constant writes, as rules read it: ``true`` for the constant ``yes`` of a boolean."""
    (text,), _ = FieldReader(field, normalizers).read_rule_inputs([constant])
    return text


def convert_constants(
    resource: Resource, constants: Mapping[str, str], normalizers: Mapping[str, Normalizer] | None
) -> dict[str, str]:
    """Return the constants as texts of the types of their fields.

    Raises:
        InvalidInput: A constant is not a valid value of its field. The message lists all of them.
    """
    converted, problems = {}, []
    for name, constant in constants.items():
        (text,), flaws = FieldReader(resource.get_field(name), normalizers).validate_and_convert_values([constant])
        problems += [f'constant "{name}" {flaw.reason}' for flaw in flaws.groups]
        if text is not None:
            converted[name] = text
    if problems:
        raise InvalidInput(f"Invalid value for resource {resource.name}: {'; '.join(problems)}")
    return converted


def _get_column_values(rows: list[JsonObject], column: str) -> list[Any]:
    try:
        return [row[column] for row in rows]
    except KeyError:
        return [row.get(column) for row in rows]


def _find_rows_without(rows: list[JsonObject], column: str) -> set[int]:
    return {index for index, row in enumerate(rows) if column not in row}
