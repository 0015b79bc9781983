"""Checks rows against the database: values of server-side types, existing keys, and references."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tidemill.core.errors import InvalidInput
from tidemill.imports.import_plan import ImportPlan
from tidemill.imports.lookup_resolver import SERVER_CHECKED_TYPES, LookupResolver
from tidemill.imports.target_table import ConcurrentRowChange, TableRejection, TargetTable, TargetUnusable
from tidemill.imports.undo_log import UndoRecorder
from tidemill.imports.validation.canonical_values import canonicalize_texts
from tidemill.imports.validation.row_checker import CheckedRows
from tidemill.imports.validation.row_errors import RowErrorDetail
from tidemill.store.database import Connection
from tidemill.tables.resource import Reference, Resource
from tidemill.tables.values.column_texts import REDACTED_VALUE, clean_value_for_error

TextRow = tuple[str | None, ...]
ROW_NOT_KEPT_REASON = (
    "PostgreSQL did not write the row: a trigger discarded it, or another row in the file has the same key"
)
CONCURRENT_CHANGES_MAX = 2  # failed updates of a row that count as a change by another session


class TableChecker:
    """Checks the rows of one batch against their table, with one statement per check."""

    def __init__(
        self,
        target: TargetTable,
        plan: ImportPlan,
        checked: CheckedRows,
        skipped: Mapping[int, RowErrorDetail],
        *,
        expects_existing: bool = True,
        undo_recorder: UndoRecorder | None = None,
    ) -> None:
        """``expects_existing``: look up existing unique values before COPY; else let COPY report the first one."""
        self.target = target
        self.undo_recorder = undo_recorder  # records what is written, if the import can be undone
        self.expects_existing = expects_existing or plan.validate_only
        self.checked = checked
        self._plan = plan
        self._skipped = skipped
        self.existing_rows: set[int] = set()  # rows that an upsert updates
        self.last_copied_rows: list[int] = []  # rows of the last COPY, in its order
        self.has_found_existing = False
        self.lookups = LookupResolver(target, plan, checked)
        self.unresolved_self_references = self.lookups.unresolved_self_references
        self.untested_rows: set[int] = set()  # rows that a dry run cannot write
        self.written_rows: set[int] = set()  # written rows are not checked again
        self._good_rows_cache: tuple[int, list[int]] | None = None
        self._candidate_rows: list[int] = []
        self._change_counts: Counter[int] = Counter()

    def list_rows_to_write(self) -> list[int]:
        """Return the rows to write: without a known error, not skipped and not written yet."""
        known = len(self.checked.errors.bad_rows) + len(self.written_rows)
        if self._good_rows_cache is None or self._good_rows_cache[0] != known:
            bad = self.checked.errors.bad_rows | self._skipped.keys() | self.written_rows
            self._good_rows_cache = known, [index for index in range(self.checked.count) if index not in bad]
        return self._good_rows_cache[1]

    async def check_rows(self) -> None:
        """Run all checks. A repeated call sees rows that other sessions have committed meanwhile."""
        async with self.target.open_read_savepoint():
            await self._run_checks()
        self.expects_existing = True

    async def create_missing_references(self) -> None:
        """Create the rows that lookups did not find. A dry run does not write the rows that refer to them."""
        await self.lookups.create_missing_rows(self.list_rows_to_write())
        if self._plan.validate_only:
            lacking = set[int]().union(*self.lookups.rows_without_key.values())
            self.untested_rows = lacking.intersection(self.list_rows_to_write())
            self.written_rows |= self.untested_rows

    def count_untested_rows(self) -> Counter[str]:
        updated = len(self.untested_rows & self.existing_rows)
        return Counter(inserted=len(self.untested_rows) - updated, updated=updated)

    async def recheck_after_change(self, moved: ConcurrentRowChange) -> None:
        """Run all checks again. Reject existing rows that several updates did not reach: it is no other session."""
        await self.check_rows()
        self._change_counts.update(self.existing_rows.intersection(moved.rows))
        self.reject_rows_not_kept(
            [index for index in moved.rows if self._change_counts[index] > CONCURRENT_CHANGES_MAX]
        )

    async def find_rows_missing_in_table(self, rows: Sequence[int]) -> list[int]:
        """Return those of these rows whose key is not in the table."""
        key = self._plan.resource.key
        if not key or not set(self._plan.mapped_fields).issuperset(key):
            return []
        keys = self.checked.get_values_of_rows(key, rows)
        existing = await self.target.find_rows_existing_in_table(key, keys)
        return [index for at, index in enumerate(rows) if at not in existing and None not in keys[at]]

    def reject_rows_not_kept(self, rows: Iterable[int]) -> None:
        """Add an error to rows that the table did not keep."""
        for index in rows:
            self.checked.add_error(index, RowErrorDetail(None, "refused", ROW_NOT_KEPT_REASON))

    async def _run_checks(self) -> None:
        await self._check_values_on_server()
        self._candidate_rows = self.list_rows_to_write()  # the same rows for every check, to report all errors of a row
        resource, given = self._plan.resource, set(self._plan.mapped_fields)
        is_first_check = not self.lookups.texts
        if is_first_check:
            await self.lookups.resolve(self._candidate_rows)
        for reference in resource.references:
            is_found = is_first_check and self.lookups.has_resolved(reference)
            if given.issuperset(reference.fields) and not is_found:
                await self._check_reference(reference)
        if self._plan.mode == "upsert":
            rows, keys = self._select_rows_with_values(resource.key)
            self._check_duplicate_keys(rows, keys)
            self.existing_rows = (
                {rows[at] for at in await self.target.find_rows_existing_in_table(resource.key, keys)}
                if rows
                else set()
            )
            await self._check_guards(rows)
            self._check_required_in_new_rows()
        for fields in dict.fromkeys((resource.key, *resource.unique)):
            if fields and given.issuperset(fields):
                await self._check_unique(fields)

    async def _check_guards(self, rows: Sequence[int]) -> None:
        """Add an error to rows whose key exists in a row with another value of a constant: it is not to be updated."""
        guards = self._plan.guard_fields
        existing = [index for index in rows if index in self.existing_rows]
        if not guards or not existing:
            return
        fields = (*self._plan.resource.key, *guards)
        values = self.checked.get_values_of_rows(fields, existing)
        same = await self.target.find_rows_existing_in_table(fields, values)
        key, named = self._plan.resource.key, ", ".join(guards)
        for at, index in enumerate(existing):
            if at not in same:
                self.existing_rows.discard(index)
                reason = f"a row with this value exists, with another value of {named} than the import sets"
                self._add_error(index, key, "exists", reason, values[at][: len(key)])

    def _check_required_in_new_rows(self) -> None:
        """Add an error to new rows without a required field. In existing rows, an upsert keeps its value."""
        for name, absent in self.checked.rows_without_field.items():
            field = self._plan.resource.get_field(name)
            if field.required and not field.filled and field.default is None:
                for index in absent.intersection(self._candidate_rows) - self.existing_rows:
                    self.checked.add_error(index, RowErrorDetail(name, "required", "must not be empty"))

    async def _check_values_on_server(self) -> None:
        looked_up = {lookup.field for lookup in self._plan.lookups}
        for name in self._plan.mapped_fields:
            field = self._plan.resource.get_field(name)
            if name in looked_up:
                continue
            if field.type in SERVER_CHECKED_TYPES or field.judged:
                texts = self.checked.columns[name]
                reported = self.checked.errors.find_rows_with_error_in_field(name)
                for index, reason in (await self.target.find_invalid_values(field, texts)).items():
                    if index in reported:
                        continue
                    shown = (
                        f"must be a value of type {field.sql_type}"
                        if field.sensitive
                        else clean_value_for_error(reason)
                    )
                    value = format_row_values(self._plan.resource, [name], [texts[index]])
                    code = "type" if field.type in SERVER_CHECKED_TYPES else "check"
                    self.checked.add_error(index, RowErrorDetail(name, code, shown or reason, value))
                    texts[index] = None

    def _check_duplicate_keys(self, rows: Sequence[int], keys: Sequence[TextRow]) -> None:
        """Add an error to repeated keys, except for the first row. Fixes can create repeats after the file was read."""
        key, columns = self._plan.resource.key, zip(*keys, strict=True)
        fields = map(self._plan.resource.get_field, key)
        same = list(
            zip(*(canonicalize_texts(*one) for one in zip(fields, map(list, columns), strict=False)), strict=True)
        )
        first = dict(zip(reversed(same), reversed(rows), strict=True))
        if len(first) < len(rows):
            for index, values, spelled in zip(rows, keys, same, strict=True):
                if first[spelled] != index:
                    self._add_error(index, key, "duplicate", "another fixed row has the same key", values)

    async def _check_reference(self, reference: Reference) -> None:
        rows, references = self._select_rows_with_values(reference.fields)
        distinct = sorted(set(references), key=str)
        if not distinct:
            return
        missing = {distinct[at] for at in await self.target.find_missing_references(reference, distinct)}
        is_own = self._plan.is_self_reference(reference)
        if missing and is_own:
            missing -= self._find_references_within_batch(reference, missing, dict(zip(rows, references, strict=True)))
        for index, values in zip(rows, references, strict=True):
            if values in missing:
                self.unresolved_self_references |= {index} if is_own else set()
                reason = f"no matching row in {reference.table}"
                if is_own and self._plan.validate_only:
                    reason += " or in this batch of the file (a dry run does not search other batches)"
                self._add_error(index, reference.fields, "unknown_reference", reason, values)

    def _find_references_within_batch(
        self, reference: Reference, gone: set[TextRow], asked: dict[int, TextRow]
    ) -> set[TextRow]:
        """Return the references to the imported table that good rows of this batch will satisfy."""
        names = {field.column: field.name for field in self._plan.resource.fields}
        fields = [names.get(column, "") for column in reference.columns]
        if not set(self._plan.mapped_fields).issuperset(fields):
            return set()
        good = self.list_rows_to_write()
        found = dict(zip(good, self.checked.get_values_of_rows(fields, good), strict=True))
        while True:  # a row that refers to a bad row is bad itself
            own = set(found.values())
            bad = [index for index in found if asked.get(index) in gone and asked[index] not in own]
            if not bad:
                return own
            for index in bad:
                del found[index]

    async def _check_unique(self, fields: tuple[str, ...]) -> None:
        """Add an error to rows whose unique values exist in the table.

        COPY itself reports conflicts with a unique index. Then only bad rows are checked here, because COPY does not
        get them, so that the errors of a row do not depend on earlier batches.
        """
        rows = self._candidate_rows
        if fields in self._plan.resource.indexed and not self.expects_existing:
            rows = [index for index in rows if index in self.checked.errors.bad_rows]
        without_key = set[int]().union(*(self.lookups.rows_without_key.get(name, ()) for name in fields))
        if without_key:  # their NULL is not the value of the field
            rows = [index for index in rows if index not in without_key]
        for empty, alike in self._group_by_empty_fields(fields, rows).items():
            if alike and (empty or self._plan.mode == "insert" or fields != self._plan.resource.key):
                await self._check_existing_values(fields, empty, alike)

    async def _check_existing_values(self, fields: tuple[str, ...], empty: tuple[str, ...], rows: list[int]) -> None:
        """Add an error to rows whose values exist. In an upsert, only rows of the table with another key conflict."""
        key, values = self._plan.resource.key, self.checked.get_values_of_rows(fields, rows)
        if self._plan.mode == "upsert" and fields != key:
            with_key = self.checked.get_values_of_rows([*key, *(name for name in fields if name not in key)], rows)
            taken = await self.target.find_rows_taken_by_other_keys(key, fields, with_key, empty)
        else:
            taken = await self.target.find_rows_existing_in_table(fields, values, empty)
        for at in taken:
            self._add_exists_error(rows[at], fields, values[at])

    def _group_by_empty_fields(self, fields: tuple[str, ...], rows: list[int]) -> dict[tuple[str, ...], list[int]]:
        """Group the rows that these unique fields apply to by the fields that are NULL, which may count as equal."""
        columns = {name: self.checked.columns[name] for name in fields}
        lacking = [name for name in fields if None in columns[name]]
        groups: dict[tuple[str, ...], list[int]] = {} if lacking else {(): rows}
        for index in rows if lacking else ():
            groups.setdefault(tuple(name for name in lacking if columns[name][index] is None), []).append(index)
        return {
            empty: alike for empty, alike in groups.items() if self._plan.resource.enforces_uniqueness(fields, empty)
        }

    def _select_rows_with_values(self, fields: Sequence[str]) -> tuple[list[int], list[tuple[str | None, ...]]]:
        """Return the candidate rows that have a value in each of these fields, and the values."""
        rows = self._candidate_rows
        for name in fields:
            column = self.checked.columns[name]
            if None in column:
                rows = [index for index in rows if column[index] is not None]
        return rows, self.checked.get_values_of_rows(fields, rows)

    def build_row_error(self, refusal: TableRejection) -> RowErrorDetail:
        """Return the error of a rejected row. If any field is sensitive, hide messages that quote a value."""
        names = {field.column: field.name for field in self._plan.resource.fields}
        field = names.get(refusal.column or "", refusal.column)
        hides = refusal.quotes_value and any(one.sensitive for one in self._plan.resource.fields)
        reason = "the table rejected a value" if hides else refusal.reason
        return RowErrorDetail(field, refusal.code, clean_value_for_error(reason) or reason)

    def _add_exists_error(self, index: int, fields: Sequence[str], values: tuple[str | None, ...]) -> None:
        self.has_found_existing = True
        self._add_error(index, fields, "exists", "a row with this value already exists", values)

    def _add_error(
        self, index: int, fields: Sequence[str], code: str, reason: str, values: tuple[str | None, ...]
    ) -> None:
        shown = self.lookups.show_texts(index, fields, values)
        value = format_row_values(self._plan.resource, fields, shown)
        self.checked.add_error(index, RowErrorDetail(", ".join(fields), code, reason, value))


async def check_constants_in_database(conn: Connection, resource: Resource, constants: Mapping[str, str]) -> None:
    """Check constants against the types and references that only the database knows.

    Raises:
        InvalidInput: A constant is not a value of its type, or refers to no row.
    """
    if not constants:
        return
    target = TargetTable(conn, resource)
    try:
        async with target.open_read_savepoint():
            await _check_constants(target, resource, constants)
    except (TableRejection, TargetUnusable) as error:
        raise InvalidInput(f"Cannot check the constants {', '.join(constants)}: {error}") from error


async def _check_constants(target: TargetTable, resource: Resource, constants: Mapping[str, str]) -> None:
    for name, text in constants.items():
        field = resource.get_field(name)
        if field.type in SERVER_CHECKED_TYPES or field.judged:
            for reason in (await target.find_invalid_values(field, [text])).values():
                raise InvalidInput(f'Invalid constant "{name}": {reason}')
    for reference in resource.references:
        if reference.table == resource.table or not constants.keys() >= set(reference.fields):
            continue
        values = tuple(constants[name] for name in reference.fields)
        if await target.find_missing_references(reference, [values]):
            shown, named = format_row_values(resource, reference.fields, values), ", ".join(reference.fields)
            raise InvalidInput(f'Invalid constant "{named}": no matching row in {reference.table} for "{shown}"')


def format_row_values(resource: Resource, fields: Sequence[str], values: Sequence[str | None]) -> str | None:
    """Return values of a row as an error shows them. Values of sensitive fields are redacted."""
    pairs = zip(fields, values, strict=True)
    return clean_value_for_error(
        ", ".join(REDACTED_VALUE if resource.get_input_field(name).sensitive else str(value) for name, value in pairs)
    )
