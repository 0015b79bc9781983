"""Detects repeated keys during ingest, the only step that sees the rows in order."""

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec

from tidemill.core.input_source import InputSource
from tidemill.core.json_input import JsonObject
from tidemill.imports.import_plan import FileContent, ImportParams, ImportPlan, ImportRequest, make_import_plan
from tidemill.imports.key_index import KeyIndex
from tidemill.imports.validation.canonical_values import canonicalize_texts
from tidemill.imports.validation.field_reader import Normalizer
from tidemill.imports.validation.row_checker import RowRuleEvaluator, convert_constants, make_field_reader
from tidemill.store.jsonb import decode_input_or_text
from tidemill.tables.values.column_texts import ColumnTexts


class DuplicateDetector:
    """Reports rows that repeat a key of an earlier row. It decodes only the key fields of each input."""

    def __init__(self, params: JsonObject, plan: ImportPlan, normalizers: Mapping[str, Normalizer]) -> None:
        self.params = params
        self.rows_wait_for_end = (
            plan.duplicates == "last"
            and bool(plan.unique_field_sets)
            and plan.unique_field_sets[0] == plan.resource.key
        )
        self._unique_field_sets = plan.unique_field_sets
        self._resource = plan.resource
        self._compared_names = [plan.list_input_names(fields) for fields in self._unique_field_sets]
        names = sorted({name for compared in self._compared_names for name in compared})
        self._fields = {name: plan.resource.get_input_field(name) for name in names}
        self._constants = convert_constants(plan.resource, plan.constants, normalizers)
        self._rules = None
        if plan.skip or not plan.computed.keys().isdisjoint(names):
            self._rules = RowRuleEvaluator(plan, normalizers, names)
        set_by_rules = {*plan.constants, *plan.computed}
        self._columns = {name: column for column, name in plan.mapping.items() if name in set(names) - set_by_rules}
        self._readers = {name: make_field_reader(plan, name, normalizers) for name in self._columns}
        self._rule_columns = set(self._rules.columns) if self._rules is not None else set()
        columns = dict.fromkeys([*self._columns.values(), *sorted(self._rule_columns)])
        self._get = {column: attrgetter(f"f{at}") for at, column in enumerate(columns)}
        rename = {f"f{at}": column for at, column in enumerate(columns)}
        self._defaults = {name: plan.get_default_if_omitted(self._fields[name]) for name in self._columns}
        omitted: dict[str, Any] = {column: self._defaults[name] for name, column in self._columns.items()}
        omitted |= dict.fromkeys(self._rule_columns, msgspec.UNSET)  # a rule reads no default
        fields = [(attribute, Any, omitted[column]) for attribute, column in rename.items()]
        self._row = msgspec.defstruct("Row", fields, rename=rename, gc=False)
        self._decode_all = msgspec.json.Decoder(list[self._row], float_hook=Decimal).decode  # type: ignore[name-defined]
        self._decode = msgspec.json.Decoder(self._row, float_hook=Decimal).decode
        self._malformed = self._row()  # stands for each record that is no object
        key = plan.resource.key
        self._keys = [
            KeyIndex(keep_latest=plan.duplicates == "last" and fields == key) for fields in self._unique_field_sets
        ]

    def add_inputs_and_find_duplicates(self, lo: int, inputs: Sequence[bytes]) -> list[tuple[int, int, int]]:
        """Return (seq, other, key_index) for each row that loses to another. ``lo`` is the seq of the first input."""
        if not self._unique_field_sets:
            return []
        rows = self._decode_rows(inputs)
        columns, without_key = self._compute_key_columns(rows)
        if any(row is self._malformed for row in rows):
            without_key = {index for index, row in enumerate(rows) if row is self._malformed}.union(without_key)
        repeats = []
        for key_index, fields in enumerate(self._unique_field_sets):
            names = self._compared_names[key_index]
            values: Sequence[Any] = columns[names[0]]
            if len(names) > 1 or fields in self._resource.nulls_equal:
                tuples = zip(*(columns[name] for name in names), strict=True)
                values = [
                    value if None not in value or self._enforces_uniqueness(fields, names, value) else None
                    for value in tuples
                ]
            if without_key:  # a row that a rule skips, or that is no object
                values = [None if index in without_key else value for index, value in enumerate(values)]
            pairs = self._keys[key_index].add_keys_and_find_repeats(lo, values)
            repeats += [(seq, other, key_index) for seq, other in pairs]
        return repeats

    def _compute_key_columns(self, rows: list[Any]) -> tuple[dict[str, ColumnTexts], Collection[int]]:
        """Return the comparable values of each key field, and the rows that a rule skips."""
        columns = {
            name: reader.convert_key_values(self._get_values(rows, self._columns[name], self._defaults[name]))
            for name, reader in self._readers.items()
        }
        columns |= {name: [text] * len(rows) for name, text in self._constants.items() if name in self._fields}
        skipped: Collection[int] = ()
        if self._rules is not None:
            found = self._rules.evaluate(lambda column: self._get_values(rows, column), len(rows), keys_only=True)
            columns, skipped = columns | found.columns, found.skipped
        return {name: canonicalize_texts(self._fields[name], texts) for name, texts in columns.items()}, skipped

    def _get_values(self, rows: list[Any], column: str, default: str | None = None) -> list[Any]:
        """Return the values of a column; the default for rows that do not contain it."""
        values = list(map(self._get[column], rows))
        if column not in self._rule_columns:
            return values
        return [default if value is msgspec.UNSET else value for value in values]

    def _enforces_uniqueness(self, fields: tuple[str, ...], names: tuple[str, ...], values: tuple[Any, ...]) -> bool:
        empty = [name for name, value in zip(names, values, strict=True) if value is None]
        return set(fields).issuperset(empty) and self._resource.enforces_uniqueness(fields, empty)

    def close(self) -> None:
        for keys in self._keys:
            keys.close()

    def _decode_rows(self, inputs: Sequence[bytes]) -> list[Any]:
        try:
            return self._decode_all(b"[%s]" % b",".join(inputs))
        except msgspec.MsgspecError:
            return [self._decode_row(text) for text in inputs]

    def _decode_row(self, text: bytes) -> Any:
        """Decode one record. A record that is not an object has no key."""
        try:
            return self._decode(text)
        except msgspec.MsgspecError:
            return self._malformed


def make_duplicate_detector(
    params: JsonObject, source: InputSource, normalizers: Mapping[str, Normalizer]
) -> DuplicateDetector:
    """Return a detector for an import. If the job has no plan yet, make it from the columns of the open source."""
    known = ImportParams.from_json(params)
    plan = known.plan
    if plan is None:
        request, resource = known.request or ImportRequest(), known.resource
        assert resource is not None  # noqa: S101  every import without a plan has a resource
        content = FileContent(
            columns=source.columns or resource.field_names,
            named_by_rows=source.columns is None,
            sample=[decode_input_or_text(text.decode(), exact=True) for text in source.read_sample()],
            delimiter=source.layout.delimiter,
        )
        plan = make_import_plan(request, resource, content)
        params = params | {"plan": msgspec.to_builtins(plan), "layout": source.layout.to_json()}
    return DuplicateDetector(params, plan, normalizers)
