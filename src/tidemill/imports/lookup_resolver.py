"""Replaces the texts of looked-up fields by the keys of the rows that have them, and creates missing rows."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemill.failpoints import failpoint
from tidemill.imports.import_plan import ImportPlan
from tidemill.imports.target_table import TargetTable
from tidemill.imports.validation.canonical_values import canonicalize_texts
from tidemill.imports.validation.row_checker import CheckedRows
from tidemill.imports.validation.row_errors import RowErrorDetail
from tidemill.tables.resource import Lookup, Reference
from tidemill.tables.values.column_texts import REDACTED_VALUE, ColumnTexts, clean_value_for_error

TextRow = tuple[str | None, ...]
Matches = Mapping[TextRow, tuple[int, str]]
"""Searched values -> the number of rows that have them, and the key of one of these rows."""
SERVER_CHECKED_TYPES = ("other", "array")
DRY_RUN_HINT = " or in this batch of the file (a dry run does not search other batches)"


@dataclass(slots=True)
class _MissingRows:
    """The values that a lookup did not find and will create, with the rows that have them."""

    lookup: Lookup
    rows: dict[TextRow, list[int]] = field(default_factory=dict)


class LookupResolver:
    """Looks up the rows that one batch refers to, with one statement per field."""

    def __init__(self, target: TargetTable, plan: ImportPlan, checked: CheckedRows) -> None:
        self._target = target
        self._plan = plan
        self._checked = checked
        self._lookups = plan.lookups
        self._missing: list[_MissingRows] = []
        self._results: dict[str, tuple[Sequence[TextRow], Matches]] = {}
        self.texts: dict[str, ColumnTexts] = {}  # the texts of the file, by looked-up field
        self.rows_without_key: dict[str, set[int]] = {}  # rows with a text that has no key, or none yet
        self.unresolved_self_references: set[int] = set()
        self.created: Counter[str] = Counter()  # rows by table
        self.hashes_to_create: dict[str, list[str]] = {}  # in a dry run: hashes of the rows to create, by table

    def has_resolved(self, reference: Reference) -> bool:
        """Whether the lookup of a field has found the rows that this reference requires."""
        return any(
            ((one.field,), one.table, (one.key,)) == (reference.fields, reference.table, reference.columns)
            for one in self._lookups
            if one.field in self.texts
        )

    @property
    def created_by_table(self) -> dict[str, int | list[str]]:
        """The number of created rows by table; in a dry run, hashes of the rows to create."""
        return {**+self.created, **self.hashes_to_create}

    async def resolve(self, rows: Sequence[int]) -> None:
        """Set the keys in these rows, and None in all others. Rows without a match, or with several, get an error."""
        for lookup in self._lookups:
            self.texts[lookup.field] = self._checked.columns[lookup.field]
            await self._resolve_lookup(lookup, rows)

    async def _resolve_lookup(self, lookup: Lookup, rows: Sequence[int]) -> None:
        texts = self.texts[lookup.field]
        searched = await self._drop_invalid_values(lookup, [index for index in rows if texts[index] is not None])
        values = self._checked.get_values_of_rows([one.name for one in lookup.by], searched)
        matches = await self._find_matches(lookup, dict.fromkeys(values))
        self._results[lookup.field] = values, matches
        keys: ColumnTexts = [None] * self._checked.count
        for index, value in zip(searched, values, strict=True):
            count, key = matches.get(value, (0, None))
            if count == 1:
                keys[index] = key
        self._checked.columns[lookup.field] = self._fill_default(lookup, texts, keys)
        self.rows_without_key[lookup.field] = {index for index in searched if keys[index] is None}
        if self.rows_without_key[lookup.field]:
            self._handle_rows_without_key(lookup, searched, values, matches)

    def _handle_rows_without_key(
        self, lookup: Lookup, rows: Sequence[int], values: Sequence[TextRow], matches: Matches
    ) -> None:
        missing = _MissingRows(lookup)
        own_values = self._list_values_of_batch(lookup)
        for index, value in zip(rows, values, strict=True):
            count = matches.get(value, (0, None))[0]
            if count > 1:
                reason = f"{count:,} rows in {lookup.table} have this {_format_columns(lookup)}"
                self._add_error(lookup, index, "ambiguous_reference", reason, value)
            elif count == 0 and lookup.create and None not in value and "" not in value:
                missing.rows.setdefault(value, []).append(index)
            elif count == 0 and value not in own_values:
                self._add_missing_error(lookup, index, value)
        if missing.rows:
            self._missing.append(missing)

    def _fill_default(self, lookup: Lookup, texts: ColumnTexts, keys: ColumnTexts) -> ColumnTexts:
        """Set the default of the field, which is a key, in rows without a text."""
        own = self._plan.resource.get_field(lookup.field)
        if own.default is None or None not in texts:
            return keys
        absent = self._checked.rows_without_field.get(lookup.field, set())
        rows = [index for index, text in enumerate(texts) if text is None]
        for index in rows:
            if not self._plan.keeps_null(own) or index in absent:
                keys[index] = own.default
        return keys

    async def _drop_invalid_values(self, lookup: Lookup, rows: list[int]) -> list[int]:
        """Add an error to rows with a text that only the server can read, and does not accept."""
        for one in lookup.by:
            if one.type in SERVER_CHECKED_TYPES or one.judged:
                column = self._checked.columns[one.name]
                invalid = await self._target.find_invalid_values(one, [column[index] for index in rows])
                for at, reason in invalid.items():
                    hidden = f"must be a value of type {one.sql_type}" if one.sensitive else reason
                    self._add_error(lookup, rows[at], "type", clean_value_for_error(hidden) or "", (column[rows[at]],))
                rows = [index for at, index in enumerate(rows) if at not in invalid]
        return rows

    async def _find_matches(self, lookup: Lookup, values: Iterable[TextRow]) -> Matches:
        searched = [value for value in values if None not in value]
        if not searched:
            return {}
        found = await self._target.find_rows_by_lookup(lookup, searched)
        return {searched[at]: match for at, match in found.items()}

    def _list_values_of_batch(self, lookup: Lookup) -> set[TextRow]:
        """Return the values that valid rows of a dry run would write to the searched columns, if it is their table.

        In an import, a row waits until the row that it refers to is written and has a key.
        """
        names = {one.column: one.name for one in self._plan.resource.fields}
        fields = [names.get(column, "") for column in lookup.columns]
        if not self._plan.validate_only or not self._is_own_table(lookup):
            return set()
        if not set(self._plan.mapped_fields).issuperset(fields):
            return set()
        good = [index for index in range(self._checked.count) if index not in self._checked.errors.bad_rows]
        return set(self._checked.get_values_of_rows(fields, good))

    def _is_own_table(self, lookup: Lookup) -> bool:
        return lookup.table == self._plan.resource.table

    def _add_missing_error(self, lookup: Lookup, index: int, value: TextRow) -> None:
        reason = f"no row in {lookup.table} has this {_format_columns(lookup)}"
        if self._is_own_table(lookup):
            self.unresolved_self_references.add(index)
            reason += DRY_RUN_HINT if self._plan.validate_only else ""
        self._add_error(lookup, index, "unknown_reference", reason, value)

    def _add_error(self, lookup: Lookup, index: int, code: str, reason: str, value: TextRow) -> None:
        shown = [REDACTED_VALUE if one.sensitive else text or "" for one, text in zip(lookup.by, value, strict=False)]
        problem = RowErrorDetail(lookup.field, code, reason, clean_value_for_error(", ".join(shown)))
        self._checked.add_error(index, problem)

    async def create_missing_rows(self, rows: Iterable[int]) -> None:
        """Create the rows that these rows refer to, and set their keys. A dry run only counts them.

        All sessions create rows in the same order, so that they cannot deadlock.
        """
        good = set(rows)
        by_target: dict[tuple[str, tuple[str, ...]], list[_MissingRows]] = {}
        for one in self._missing:
            kept = {value: used for value, at in one.rows.items() if (used := [row for row in at if row in good])}
            if kept:
                target = str(one.lookup.table), one.lookup.columns
                by_target.setdefault(target, []).append(_MissingRows(one.lookup, kept))
        self._missing = []
        for (table, _), missing in sorted(by_target.items(), key=lambda pair: pair[0]):
            values = list(dict.fromkeys(value for one in missing for value in one.rows))
            distinct = _sort_and_merge_spellings(missing[0].lookup, values)
            if self._plan.validate_only:
                self.hashes_to_create.setdefault(table, []).extend(map(_hash_value, distinct))
                continue
            self.created[table] += await self._target.create_referenced_rows(missing[0].lookup, list(distinct.values()))
            failpoint("import.references_created")
            matches = await self._find_matches(missing[0].lookup, values)
            for one in missing:
                self._set_created_keys(one, matches)

    def _set_created_keys(self, missing: _MissingRows, matches: Matches) -> None:
        lookup = missing.lookup
        for value, rows in missing.rows.items():
            count, key = matches.get(value, (0, None))
            for index in rows:
                if count == 1:
                    self._checked.columns[lookup.field][index] = key
                    self.rows_without_key[lookup.field].discard(index)
                else:  # a trigger discarded or changed the new row
                    self._add_missing_error(lookup, index, value)

    def count_values(self, field_name: str) -> dict[str, int]:
        """Return how many different values were found, are missing, or are ambiguous."""
        values, matches = self._results.get(field_name, ((), {}))
        counts = [matches.get(value, (0, None))[0] for value in set(values)]
        found = counts.count(1)
        missing = counts.count(0)
        return {"found": found, "missing": missing, "ambiguous": len(counts) - found - missing}

    def show_texts(self, index: int, fields: Sequence[str], values: TextRow) -> TextRow:
        """Return values for an error, with the text of the file instead of the key that it was replaced by."""
        return tuple(
            (self.texts[name][index] if name in self.texts else None) or value
            for name, value in zip(fields, values, strict=True)
        )


def _sort_and_merge_spellings(lookup: Lookup, values: Sequence[TextRow]) -> dict[TextRow, TextRow]:
    """Return one of the values for each canonical value, in the order of the canonical values."""
    columns = zip(*values, strict=True)
    canonical = [canonicalize_texts(one, list(column)) for one, column in zip(lookup.by, columns, strict=True)]
    pairs = zip(zip(*canonical, strict=True), values, strict=True)
    return dict(sorted(pairs, key=lambda pair: tuple(map(str, pair[0]))))


def _hash_value(value: TextRow) -> str:
    return hashlib.blake2b("\0".join(map(str, value)).encode(), digest_size=8).hexdigest()


def _format_columns(lookup: Lookup) -> str:
    *before, last = lookup.columns
    return f"{', '.join(before)} and {last}" if before else last
