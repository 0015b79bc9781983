"""What an import does, decided once, when it is submitted, and kept with its job."""

from dataclasses import dataclass, field
from typing import Literal

from tidemill.domain.errors import InvalidInput
from tidemill.domain.resource import Resource

KIND = "tidemill.import"
Mode = Literal["insert", "upsert"]
Duplicates = Literal["first", "last", "error"]
"""Which of several rows with one key is imported. ``error`` is ``first``, and the others are failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    resource: Resource
    mode: Mode = "insert"
    validate_only: bool = False
    duplicates: Duplicates = "error"
    mapping: dict[str, str] = field(default_factory=dict)  # column of the file -> field
    first_line: int = 1  # of the first record in its file

    @property
    def given(self) -> tuple[str, ...]:
        """The fields that the file has, in the resource's order."""
        mapped = set(self.mapping.values())
        return tuple(name for name in self.resource.names if name in mapped)

    @property
    def watched(self) -> tuple[tuple[str, ...], ...]:
        """Sets of fields that no two rows of the file may share, as far as the file has them; the key first."""
        given, key = set(self.given), self.resource.key
        sets = [key, *(fields for fields in self.resource.unique if fields != key)]
        return tuple(fields for fields in sets if fields and given.issuperset(fields))


def check_plan(plan: ImportPlan) -> None:
    """Refuse what could not work, before a row is read."""
    resource = plan.resource
    if plan.mode == "upsert":
        if not resource.key:
            raise InvalidInput(f"an upsert needs a key: say which fields identify a row of {resource.name}")
        if resource.key not in resource.unique:
            named = ", ".join(resource.key)
            raise InvalidInput(f"an upsert needs a unique index on ({named}); {resource.table} has none")
        lacking = [name for name in resource.key if name not in plan.given]
        if lacking:
            raise InvalidInput(f"an upsert by {', '.join(resource.key)} needs a column for {', '.join(lacking)}")
    if not plan.given:
        raise InvalidInput(f"no column of the file is a field of {resource.name}")
