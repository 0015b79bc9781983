"""What only the database can say of rows: which keys are there already, which references lead nowhere."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tidemill.domain.importing import Checked, ImportPlan
from tidemill.domain.resource import Reference, Resource
from tidemill.domain.values import Problem
from tidemill.domain.values.problem import REDACTED, shown
from tidemill.domain.values.same import same_texts
from tidemill.store.target import Target
from tidemill.store.target_refusals import Moved, Refusal

Row = tuple[str | None, ...]
SERVER_JUDGES = ("other", "array")
PASSED_OVER = "the table has not taken it: a trigger passed it over, or another row of the file has its key"
MOVES = 2  # of a table under our feet, after which a row that stays as it is does so by its own will


class Judge:
    """The rows of one batch before their table. One statement for each question, however many rows."""

    def __init__(
        self,
        target: Target,
        plan: ImportPlan,
        checked: Checked,
        skipped: Mapping[int, Problem],
        *,
        expects_existing: bool = True,
    ) -> None:
        """``expects_existing``: whether it is worth a look which values are there already, before COPY finds out."""
        self.target = target
        self.expects_existing = expects_existing or plan.validate_only
        self.checked = checked
        self._plan = plan
        self._skipped = skipped
        self.existing: set[int] = set()  # rows that an upsert updates
        self.written: list[int] = []  # rows of the last COPY, in its order
        self.found_existing = False
        self.early: set[int] = set()  # rows that refer to rows of their own table which are not there
        self.landed: set[int] = set()  # rows that are written: no look finds fault with them
        self._good: tuple[int, list[int]] | None = None
        self._in_question: list[int] = []
        self._moves: Counter[int] = Counter()

    def good(self) -> list[int]:
        """Rows still to be written that nothing is wrong with, as far as is known."""
        known = len(self.checked.flaws.rows) + len(self.landed)
        if self._good is None or self._good[0] != known:
            bad = self.checked.flaws.rows | self._skipped.keys() | self.landed
            self._good = known, [index for index in range(self.checked.count) if index not in bad]
        return self._good[1]

    async def look(self) -> None:
        """Ask everything; asked again, it sees what others have committed meanwhile, and what COPY ran into."""
        async with self.target.looking():
            await self._look()
        self.expects_existing = True

    async def look_after(self, moved: Moved) -> None:
        """Look again. Rows that no update has reached though they are there: it was no other session, each time."""
        await self.look()
        self._moves.update(self.existing.intersection(moved.rows))
        self.refuse([index for index in moved.rows if self._moves[index] > MOVES])

    async def absent(self, rows: Sequence[int]) -> list[int]:
        """Those of these rows that have a key which the table has not."""
        key = self._plan.resource.key
        if not key or not set(self._plan.given).issuperset(key):
            return []
        keys = self.checked.tuples(key, rows)
        there = await self.target.existing(key, keys)
        return [index for place, index in enumerate(rows) if place not in there and None not in keys[place]]

    def refuse(self, rows: Iterable[int]) -> None:
        """Rows that were sent, and are not in the table."""
        for index in rows:
            self.checked.add(index, Problem(None, "refused", PASSED_OVER))

    async def _look(self) -> None:
        await self._look_at_types()
        self._in_question = self.good()  # by every question: all that is wrong with a row is told
        resource, given = self._plan.resource, set(self._plan.given)
        for reference in resource.references:
            if given.issuperset(reference.fields):
                await self._look_at_reference(reference)
        if self._plan.mode == "upsert":
            rows, keys = self._asked(resource.key)
            self._look_at_each_other(rows, keys)
            self.existing = {rows[place] for place in await self.target.existing(resource.key, keys)} if rows else set()
            self._look_at_absent()
        for fields in dict.fromkeys((resource.key, *resource.unique)):
            if fields and given.issuperset(fields):
                await self._look_at_unique(fields)

    def _look_at_absent(self) -> None:
        """What an update leaves alone, a new row must have."""
        for name, absent in self.checked.absent.items():
            field = self._plan.resource.field(name)
            if field.required and not field.filled and field.default is None:
                for index in absent.intersection(self._in_question) - self.existing:
                    self.checked.add(index, Problem(name, "required", "must not be empty"))

    async def _look_at_types(self) -> None:
        for name in self._plan.given:
            field = self._plan.resource.field(name)
            if field.type in SERVER_JUDGES or field.judged:
                texts = self.checked.columns[name]
                told_of = self.checked.flaws.of_field(name)
                for index, reason in (await self.target.invalid(name, texts)).items():
                    if index in told_of:
                        continue
                    said = f"not a value of type {field.sql_type}" if field.sensitive else shown(reason)
                    value = told(self._plan.resource, [name], [texts[index]])
                    code = "type" if field.type in SERVER_JUDGES else "check"
                    self.checked.add(index, Problem(name, code, said or reason, value))
                    texts[index] = None

    def _look_at_each_other(self, rows: Sequence[int], keys: Sequence[Row]) -> None:
        """Rows that were corrected after their file was read may have the same key: the first is the one."""
        key, columns = self._plan.resource.key, zip(*keys, strict=True)
        fields = map(self._plan.resource.field, key)
        same = list(zip(*(same_texts(*one) for one in zip(fields, map(list, columns), strict=False)), strict=True))
        first = dict(zip(reversed(same), reversed(rows), strict=True))
        if len(first) < len(rows):
            for index, values, spelled in zip(rows, keys, same, strict=True):
                if first[spelled] != index:
                    self._tell(index, key, "duplicate", "another corrected row has the same", values)

    async def _look_at_reference(self, reference: Reference) -> None:
        rows, asked = self._asked(reference.fields)
        distinct = sorted(set(asked), key=str)
        if not distinct:
            return
        gone = {distinct[place] for place in await self.target.missing(reference, distinct)}
        is_own = self._plan.is_own(reference)
        if gone and is_own:
            gone -= self._own(reference, gone, dict(zip(rows, asked, strict=True)))
        for index, values in zip(rows, asked, strict=True):
            if values in gone:
                self.early |= {index} if is_own else set()
                reason = f"there is no such row in {reference.table}"
                if is_own and self._plan.validate_only:
                    reason += ", nor near this one in the file: a trial looks no further"
                self._tell(index, reference.fields, "unknown_reference", reason, values)

    def _own(self, reference: Reference, gone: set[Row], asked: dict[int, Row]) -> set[Row]:
        """Of references into the very table that is imported, those that good rows of this batch will be there for."""
        names = {field.column: field.name for field in self._plan.resource.fields}
        fields = [names.get(column, "") for column in reference.columns]
        if not set(self._plan.given).issuperset(fields):
            return set()
        good = self.good()
        found = dict(zip(good, self.checked.tuples(fields, good), strict=True))
        while True:  # who refers to a row that is bad is bad, and so on
            own = set(found.values())
            bad = [index for index in found if asked.get(index) in gone and asked[index] not in own]
            if not bad:
                return own
            for index in bad:
                del found[index]

    async def _look_at_unique(self, fields: tuple[str, ...]) -> None:
        """COPY meets what an index holds unique: asked about are rows that it will not get, and what has no index.

        So errors depend on no batch before.
        """
        rows = self._in_question
        if fields in self._plan.resource.indexed and not self.expects_existing:
            rows = [index for index in rows if index in self.checked.flaws.rows]
        for empty, alike in self._by_empty(fields, rows).items():
            if alike and (empty or self._plan.mode == "insert" or fields != self._plan.resource.key):
                await self._look_at_taken(fields, empty, alike)

    async def _look_at_taken(self, fields: tuple[str, ...], empty: tuple[str, ...], rows: list[int]) -> None:
        """In the way of an upsert is only what a row of another key has; its own may have come since we looked."""
        key, asked = self._plan.resource.key, self.checked.tuples(fields, rows)
        if self._plan.mode == "upsert" and fields != key:
            with_key = self.checked.tuples([*key, *(name for name in fields if name not in key)], rows)
            taken = await self.target.taken(key, fields, with_key, empty)
        else:
            taken = await self.target.existing(fields, asked, empty)
        for place in taken:
            self._tell_exists(rows[place], fields, asked[place])

    def _by_empty(self, fields: tuple[str, ...], rows: list[int]) -> dict[tuple[str, ...], list[int]]:
        """Rows that these fields tell apart, by those of them that they lack: it counts where NULL equals NULL."""
        columns = {name: self.checked.columns[name] for name in fields}
        lacking = [name for name in fields if None in columns[name]]
        groups: dict[tuple[str, ...], list[int]] = {} if lacking else {(): rows}
        for index in rows if lacking else ():
            groups.setdefault(tuple(name for name in lacking if columns[name][index] is None), []).append(index)
        return {empty: alike for empty, alike in groups.items() if self._plan.resource.tells(fields, empty)}

    def _asked(self, fields: Sequence[str]) -> tuple[list[int], list[tuple[str | None, ...]]]:
        """Rows in question that have a value in each of these fields, and the values."""
        rows = self._in_question
        for name in fields:
            column = self.checked.columns[name]
            if None in column:
                rows = [index for index in rows if column[index] is not None]
        return rows, self.checked.tuples(fields, rows)

    def problem_of(self, refusal: Refusal) -> Problem:
        """What a row has run into. The server quotes values that it cannot read: none of a secret field."""
        names = {field.column: field.name for field in self._plan.resource.fields}
        field = names.get(refusal.column or "", refusal.column)
        hides = refusal.quotes and any(one.sensitive for one in self._plan.resource.fields)
        reason = "a value that the table does not take" if hides else refusal.reason
        return Problem(field, refusal.code, shown(reason) or reason)

    def _tell_exists(self, index: int, fields: Sequence[str], values: tuple[str | None, ...]) -> None:
        self.found_existing = True
        self._tell(index, fields, "exists", "a row with this value is there already", values)

    def _tell(self, index: int, fields: Sequence[str], code: str, reason: str, values: tuple[str | None, ...]) -> None:
        value = told(self._plan.resource, fields, values)
        self.checked.add(index, Problem(", ".join(fields), code, reason, value))


def told(resource: Resource, fields: Sequence[str], values: Sequence[str | None]) -> str | None:
    """Values of a row for an error to show; none of a field that is secret."""
    pairs = zip(fields, values, strict=True)
    return shown(", ".join(REDACTED if resource.field(name).sensitive else str(value) for name, value in pairs))
