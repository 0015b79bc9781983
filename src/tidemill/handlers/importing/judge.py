"""What only the database can say of rows: which keys are there already, which references lead nowhere."""

from collections.abc import Mapping, Sequence

from tidemill.domain.importing import Checked, ImportPlan
from tidemill.domain.resource import Reference
from tidemill.domain.values import Problem
from tidemill.domain.values.problem import shown
from tidemill.store.target import Target

SERVER_JUDGES = ("other", "array")


class Judge:
    """The rows of one batch before their table. One statement for each question, however many rows."""

    def __init__(self, target: Target, plan: ImportPlan, checked: Checked, skipped: Mapping[int, Problem]) -> None:
        self.target = target
        self.checked = checked
        self._plan = plan
        self._skipped = skipped
        self.existing: set[int] = set()  # rows that an upsert updates
        self.written: list[int] = []  # rows of the last COPY, in its order
        self._good: tuple[int, list[int]] | None = None

    def good(self) -> list[int]:
        """Rows that nothing is wrong with, as far as is known."""
        known = len(self.checked.problems)
        if self._good is None or self._good[0] != known:
            bad = self.checked.problems.keys() | self._skipped.keys()
            self._good = known, [index for index in range(self.checked.count) if index not in bad]
        return self._good[1]

    async def look(self) -> None:
        """Ask everything; asked again, it sees what others have committed meanwhile."""
        async with self.target.looking():
            await self._look()

    async def _look(self) -> None:
        await self._look_at_types()
        resource, given = self._plan.resource, set(self._plan.given)
        for reference in resource.references:
            if given.issuperset(reference.fields):
                await self._look_at_reference(reference)
        if self._plan.mode == "upsert":
            rows, keys = self._asked(resource.key)
            self.existing = {rows[place] for place in await self.target.existing(resource.key, keys)} if rows else set()
        for fields in {resource.key, *resource.unique}:
            if fields and given.issuperset(fields) and not (self._plan.mode == "upsert" and fields == resource.key):
                await self._look_at_unique(fields)

    async def _look_at_types(self) -> None:
        for name in self._plan.given:
            field = self._plan.resource.field(name)
            if field.type in SERVER_JUDGES:
                texts = self.checked.columns[name]
                for index, reason in (await self.target.invalid(name, texts)).items():
                    self.checked.add(index, Problem(name, "type", reason, shown(texts[index])))
                    texts[index] = None

    async def _look_at_reference(self, reference: Reference) -> None:
        rows, asked = self._asked(reference.fields)
        distinct = sorted(set(asked), key=str)
        if not distinct:
            return
        gone = {distinct[place] for place in await self.target.missing(reference, distinct)}
        for index, values in zip(rows, asked, strict=True):
            if values in gone:
                reason = f"there is no such row in {reference.table}"
                self._tell(index, reference.fields, "unknown_reference", reason, values)

    async def _look_at_unique(self, fields: Sequence[str]) -> None:
        rows, asked = self._asked(fields)
        if self.existing:
            left = [place for place, index in enumerate(rows) if index not in self.existing]
            rows, asked = [rows[place] for place in left], [asked[place] for place in left]
        for place in await self.target.existing(fields, asked) if rows else ():
            self._tell(rows[place], fields, "exists", "a row with this value is there already", asked[place])

    def _asked(self, fields: Sequence[str]) -> tuple[list[int], list[tuple[str | None, ...]]]:
        """Good rows that have a value in each of these fields, and the values."""
        rows = self.good()
        for name in fields:
            column = self.checked.columns[name]
            if None in column:
                rows = [index for index in rows if column[index] is not None]
        return rows, self.checked.tuples(fields, rows)

    def _tell(self, index: int, fields: Sequence[str], code: str, reason: str, values: tuple[str | None, ...]) -> None:
        value = shown(", ".join(str(value) for value in values))
        self.checked.add(index, Problem(", ".join(fields), code, reason, value))
