"""What an import does, decided once, when it is submitted, and kept with its job."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tidemill.domain.errors import InvalidColumns, InvalidInput
from tidemill.domain.importing.mapping import Columns, guess
from tidemill.domain.resource import Field, Reference, Resource

KIND = "tidemill.import"
Mode = Literal["insert", "upsert"]
Duplicates = Literal["first", "last", "error"]
"""Which of several rows with one key is imported. ``error`` is ``first``, and the others are failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What is asked of an import, in the words of a request. ``key`` overrides the resource's."""

    mode: Mode = "insert"
    validate_only: bool = False
    duplicates: Duplicates = "error"
    mapping: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    spreadsheet_safe: bool = False  # the file was made so: the apostrophes that keep text from being run are taken off
    keep_empty: bool = False  # empty text is a value: what is not there is null, or in CSV a field without quotes


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    resource: Resource
    mode: Mode = "insert"
    validate_only: bool = False
    duplicates: Duplicates = "error"
    mapping: dict[str, str] = field(default_factory=dict)  # column of the file -> field
    columns: tuple[str, ...] = ()  # of the file, in its order
    spreadsheet_safe: bool = False
    keep_empty: bool = False
    documents: bool = False  # a text in a field of JSON is a document itself, and not how one is written

    @property
    def in_order(self) -> dict[str, str]:
        """The mapping in the order of the file, which a stored one does not keep: problems of a row are told so."""
        return {column: self.mapping[column] for column in self.columns if column in self.mapping} | self.mapping

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

    def is_own(self, reference: Reference) -> bool:
        """Whether it leads into the very table that is imported, so that other rows of the file may be there for it."""
        return reference.table == self.resource.table and set(self.given).issuperset(reference.fields)

    def keeps_nothing(self, field: Field) -> bool:
        """Whether nothing is NULL there, and no default stands for it."""
        return self.keep_empty and field.nullable

    def stands_in(self, field: Field) -> str | None:
        """The default for a row that does not name a field, where it is none for a field that is named and nothing."""
        return field.default if self.keeps_nothing(field) else None

    @property
    def waits(self) -> bool:
        """Whether a row may have to wait for another of the file. In a trial it would wait for ever."""
        return not self.validate_only and any(map(self.is_own, self.resource.references))


def make_plan(
    request: ImportRequest, resource: Resource, columns: Sequence[str], *, named_by_rows: bool = False
) -> ImportPlan:
    """The plan of an import of a file with these columns; InvalidColumns says all that is wrong with them at once.

    ``named_by_rows``: each record names its own fields, so that others than these may still come.
    """
    resource = replace(resource, key=request.key) if request.key else resource
    found = columns_of(request, resource, columns, named_by_rows=named_by_rows)
    if not found.is_good:
        raise InvalidColumns(found.problems)
    plan = ImportPlan(
        resource=resource,
        mode=request.mode,
        validate_only=request.validate_only,
        duplicates=request.duplicates,
        mapping=found.mapping,
        columns=tuple(columns),
        spreadsheet_safe=request.spreadsheet_safe,
        keep_empty=request.keep_empty,
        documents=request.keep_empty and named_by_rows,
    )
    check_plan(plan)
    return plan


def columns_of(
    request: ImportRequest, resource: Resource, columns: Sequence[str], *, named_by_rows: bool = False
) -> Columns:
    found = guess(columns, resource, request.mapping)
    if not named_by_rows:
        return found
    lacking = {f"there is no column for {name!r}, which is required" for name in found.missing}
    mapping = {name: name for name in resource.names if name not in found.mapping.values()} | found.mapping
    return replace(found, mapping=mapping, missing=[], problems=[one for one in found.problems if one not in lacking])


def check_plan(plan: ImportPlan) -> None:
    """Refuse what could not work, before a row is read."""
    resource = plan.resource
    unknown = [name for name in resource.key if name not in resource.names]
    if unknown:
        raise InvalidInput(f"the key names {', '.join(unknown)}, which {resource.name} does not have")
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
