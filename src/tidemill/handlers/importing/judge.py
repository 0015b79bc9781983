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

    def good(self) -> list[int]:
        """Rows that nothing is wrong with, as far as is known."""
        return [index for index in self.checked.good() if index not in self._skipped]

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
        rows_left = [(index, values) for index, values in zip(rows, asked, strict=True) if index not in self.existing]
        if not rows_left:
            return
        there = await self.target.existing(fields, [values for _, values in rows_left])
        for place in there:
            index, values = rows_left[place]
            self._tell(index, fields, "exists", "a row with this value is there already", values)

    def _asked(self, fields: Sequence[str]) -> tuple[list[int], list[tuple[str | None, ...]]]:
        """Good rows that have a value in each of these fields, and the values."""
        rows = self.good()
        values = self.checked.tuples(fields, rows)
        whole = [(index, value) for index, value in zip(rows, values, strict=True) if None not in value]
        return [index for index, _ in whole], [value for _, value in whole]

    def _tell(self, index: int, fields: Sequence[str], code: str, reason: str, values: tuple[str | None, ...]) -> None:
        value = shown(", ".join(str(value) for value in values))
        self.checked.add(index, Problem(", ".join(fields), code, reason, value))
