"""What only the database can say of rows: which keys are there already, which references lead nowhere."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tidemill.imports.import_plan import ImportPlan
from tidemill.imports.target_table import ConcurrentRowChange, TableRejection, TargetTable
from tidemill.imports.validation.canonical_values import canonicalize_texts
from tidemill.imports.validation.row_checker import CheckedRows
from tidemill.imports.validation.row_errors import RowErrorDetail
from tidemill.tables.resource import Reference, Resource
from tidemill.tables.values.column_texts import REDACTED_VALUE, truncate_for_error

TextRow = tuple[str | None, ...]
SERVER_CHECKED_TYPES = ("other", "array")
ROW_NOT_KEPT_REASON = "the table has not taken it: a trigger passed it over, or another row of the file has its key"
CONCURRENT_CHANGES_MAX = 2  # of a table under our feet, after which a row that stays as it is does so by its own will


class TableChecker:
    """The rows of one batch before their table. One statement for each question, however many rows."""

    def __init__(
        self,
        target: TargetTable,
        plan: ImportPlan,
        checked: CheckedRows,
        skipped: Mapping[int, RowErrorDetail],
        *,
        expects_existing: bool = True,
    ) -> None:
        """``expects_existing``: whether it is worth a look which values are there already, before COPY finds out."""
        self.target = target
        self.expects_existing = expects_existing or plan.validate_only
        self.checked = checked
        self._plan = plan
        self._skipped = skipped
        self.existing_rows: set[int] = set()  # rows that an upsert updates
        self.last_copied_rows: list[int] = []  # rows of the last COPY, in its order
        self.has_found_existing = False
        self.unresolved_self_references: set[int] = (
            set()
        )  # rows that refer to rows of their own table which are not there
        self.written_rows: set[int] = set()  # rows that are written: no look finds fault with them
        self._good_rows_cache: tuple[int, list[int]] | None = None
        self._candidate_rows: list[int] = []
        self._change_counts: Counter[int] = Counter()

    def list_good_rows(self) -> list[int]:
        """Rows still to be written that nothing is wrong with, as far as is known."""
        known = len(self.checked.errors.bad_rows) + len(self.written_rows)
        if self._good_rows_cache is None or self._good_rows_cache[0] != known:
            bad = self.checked.errors.bad_rows | self._skipped.keys() | self.written_rows
            self._good_rows_cache = known, [index for index in range(self.checked.count) if index not in bad]
        return self._good_rows_cache[1]

    async def check_rows(self) -> None:
        """Ask everything; asked again, it sees what others have committed meanwhile, and what COPY ran into."""
        async with self.target.open_read_savepoint():
            await self._run_checks()
        self.expects_existing = True

    async def recheck_after_change(self, moved: ConcurrentRowChange) -> None:
        """Look again. Rows that no update has reached though they are there: it was no other session, each time."""
        await self.check_rows()
        self._change_counts.update(self.existing_rows.intersection(moved.rows))
        self.reject_rows([index for index in moved.rows if self._change_counts[index] > CONCURRENT_CHANGES_MAX])

    async def find_absent_rows(self, rows: Sequence[int]) -> list[int]:
        """Those of these rows that have a key which the table has not."""
        key = self._plan.resource.key
        if not key or not set(self._plan.mapped_fields).issuperset(key):
            return []
        keys = self.checked.get_tuples(key, rows)
        there = await self.target.find_existing(key, keys)
        return [index for place, index in enumerate(rows) if place not in there and None not in keys[place]]

    def reject_rows(self, rows: Iterable[int]) -> None:
        """Rows that were sent, and are not in the table."""
        for index in rows:
            self.checked.add_error(index, RowErrorDetail(None, "refused", ROW_NOT_KEPT_REASON))

    async def _run_checks(self) -> None:
        await self._check_values_on_server()
        self._candidate_rows = self.list_good_rows()  # by every question: all that is wrong with a row is told
        resource, given = self._plan.resource, set(self._plan.mapped_fields)
        for reference in resource.references:
            if given.issuperset(reference.fields):
                await self._check_reference(reference)
        if self._plan.mode == "upsert":
            rows, keys = self._select_rows_with_values(resource.key)
            self._check_duplicate_keys(rows, keys)
            self.existing_rows = (
                {rows[place] for place in await self.target.find_existing(resource.key, keys)} if rows else set()
            )
            self._check_required_in_new_rows()
        for fields in dict.fromkeys((resource.key, *resource.unique)):
            if fields and given.issuperset(fields):
                await self._check_unique(fields)

    def _check_required_in_new_rows(self) -> None:
        """What an update leaves alone, a new row must have."""
        for name, absent in self.checked.rows_without_field.items():
            field = self._plan.resource.get_field(name)
            if field.required and not field.filled and field.default is None:
                for index in absent.intersection(self._candidate_rows) - self.existing_rows:
                    self.checked.add_error(index, RowErrorDetail(name, "required", "must not be empty"))

    async def _check_values_on_server(self) -> None:
        for name in self._plan.mapped_fields:
            field = self._plan.resource.get_field(name)
            if field.type in SERVER_CHECKED_TYPES or field.judged:
                texts = self.checked.columns[name]
                told_of = self.checked.errors.find_rows_of_field(name)
                for index, reason in (await self.target.find_invalid_values(name, texts)).items():
                    if index in told_of:
                        continue
                    said = f"not a value of type {field.sql_type}" if field.sensitive else truncate_for_error(reason)
                    value = format_row_values(self._plan.resource, [name], [texts[index]])
                    code = "type" if field.type in SERVER_CHECKED_TYPES else "check"
                    self.checked.add_error(index, RowErrorDetail(name, code, said or reason, value))
                    texts[index] = None

    def _check_duplicate_keys(self, rows: Sequence[int], keys: Sequence[TextRow]) -> None:
        """Rows that were corrected after their file was read may have the same key: the first is the one."""
        key, columns = self._plan.resource.key, zip(*keys, strict=True)
        fields = map(self._plan.resource.get_field, key)
        same = list(
            zip(*(canonicalize_texts(*one) for one in zip(fields, map(list, columns), strict=False)), strict=True)
        )
        first = dict(zip(reversed(same), reversed(rows), strict=True))
        if len(first) < len(rows):
            for index, values, spelled in zip(rows, keys, same, strict=True):
                if first[spelled] != index:
                    self._add_error(index, key, "duplicate", "another corrected row has the same", values)

    async def _check_reference(self, reference: Reference) -> None:
        rows, asked = self._select_rows_with_values(reference.fields)
        distinct = sorted(set(asked), key=str)
        if not distinct:
            return
        gone = {distinct[place] for place in await self.target.find_missing_references(reference, distinct)}
        is_own = self._plan.is_self_reference(reference)
        if gone and is_own:
            gone -= self._find_references_within_batch(reference, gone, dict(zip(rows, asked, strict=True)))
        for index, values in zip(rows, asked, strict=True):
            if values in gone:
                self.unresolved_self_references |= {index} if is_own else set()
                reason = f"there is no such row in {reference.table}"
                if is_own and self._plan.validate_only:
                    reason += ", nor near this one in the file: a trial looks no further"
                self._add_error(index, reference.fields, "unknown_reference", reason, values)

    def _find_references_within_batch(
        self, reference: Reference, gone: set[TextRow], asked: dict[int, TextRow]
    ) -> set[TextRow]:
        """Of references into the very table that is imported, those that good rows of this batch will be there for."""
        names = {field.column: field.name for field in self._plan.resource.fields}
        fields = [names.get(column, "") for column in reference.columns]
        if not set(self._plan.mapped_fields).issuperset(fields):
            return set()
        good = self.list_good_rows()
        found = dict(zip(good, self.checked.get_tuples(fields, good), strict=True))
        while True:  # who refers to a row that is bad is bad, and so on
            own = set(found.values())
            bad = [index for index in found if asked.get(index) in gone and asked[index] not in own]
            if not bad:
                return own
            for index in bad:
                del found[index]

    async def _check_unique(self, fields: tuple[str, ...]) -> None:
        """COPY meets what an index holds unique: asked about are rows that it will not get, and what has no index.

        So errors depend on no batch before.
        """
        rows = self._candidate_rows
        if fields in self._plan.resource.indexed and not self.expects_existing:
            rows = [index for index in rows if index in self.checked.errors.bad_rows]
        for empty, alike in self._group_by_empty_fields(fields, rows).items():
            if alike and (empty or self._plan.mode == "insert" or fields != self._plan.resource.key):
                await self._check_existing_values(fields, empty, alike)

    async def _check_existing_values(self, fields: tuple[str, ...], empty: tuple[str, ...], rows: list[int]) -> None:
        """In the way of an upsert is only what a row of another key has; its own may have come since we looked."""
        key, asked = self._plan.resource.key, self.checked.get_tuples(fields, rows)
        if self._plan.mode == "upsert" and fields != key:
            with_key = self.checked.get_tuples([*key, *(name for name in fields if name not in key)], rows)
            taken = await self.target.find_taken_by_others(key, fields, with_key, empty)
        else:
            taken = await self.target.find_existing(fields, asked, empty)
        for place in taken:
            self._add_exists_error(rows[place], fields, asked[place])

    def _group_by_empty_fields(self, fields: tuple[str, ...], rows: list[int]) -> dict[tuple[str, ...], list[int]]:
        """Rows that these fields tell apart, by those of them that they lack: it counts where NULL equals NULL."""
        columns = {name: self.checked.columns[name] for name in fields}
        lacking = [name for name in fields if None in columns[name]]
        groups: dict[tuple[str, ...], list[int]] = {} if lacking else {(): rows}
        for index in rows if lacking else ():
            groups.setdefault(tuple(name for name in lacking if columns[name][index] is None), []).append(index)
        return {
            empty: alike for empty, alike in groups.items() if self._plan.resource.enforces_uniqueness(fields, empty)
        }

    def _select_rows_with_values(self, fields: Sequence[str]) -> tuple[list[int], list[tuple[str | None, ...]]]:
        """Rows in question that have a value in each of these fields, and the values."""
        rows = self._candidate_rows
        for name in fields:
            column = self.checked.columns[name]
            if None in column:
                rows = [index for index in rows if column[index] is not None]
        return rows, self.checked.get_tuples(fields, rows)

    def build_row_error(self, refusal: TableRejection) -> RowErrorDetail:
        """What a row has run into. The server quotes values that it cannot read: none of a secret field."""
        names = {field.column: field.name for field in self._plan.resource.fields}
        field = names.get(refusal.column or "", refusal.column)
        hides = refusal.quotes_value and any(one.sensitive for one in self._plan.resource.fields)
        reason = "a value that the table does not take" if hides else refusal.reason
        return RowErrorDetail(field, refusal.code, truncate_for_error(reason) or reason)

    def _add_exists_error(self, index: int, fields: Sequence[str], values: tuple[str | None, ...]) -> None:
        self.has_found_existing = True
        self._add_error(index, fields, "exists", "a row with this value is there already", values)

    def _add_error(
        self, index: int, fields: Sequence[str], code: str, reason: str, values: tuple[str | None, ...]
    ) -> None:
        value = format_row_values(self._plan.resource, fields, values)
        self.checked.add_error(index, RowErrorDetail(", ".join(fields), code, reason, value))


def format_row_values(resource: Resource, fields: Sequence[str], values: Sequence[str | None]) -> str | None:
    """Values of a row for an error to show; none of a field that is secret."""
    pairs = zip(fields, values, strict=True)
    return truncate_for_error(
        ", ".join(REDACTED_VALUE if resource.get_field(name).sensitive else str(value) for name, value in pairs)
    )
