"""The plan of an import: made once, when the file is submitted, and stored with the job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

import msgspec

from tidemill.core.errors import InvalidColumns, InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.imports.column_mapping import ColumnMapping, map_columns
from tidemill.tables.resource import Field, Reference, Resource

ImportWriteMode = Literal["insert", "upsert"]
DuplicateRule = Literal["first", "last", "error"]
"""Which of several rows with one key is imported. ``error`` is ``first``, and the others are failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """The options of an import as a request has them. ``key`` overrides the key of the resource."""

    mode: ImportWriteMode = "insert"
    validate_only: bool = False
    duplicates: DuplicateRule = "error"
    mapping: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    spreadsheet_safe: bool = False  # the file was made so: the apostrophes that keep text from being run are taken off
    keep_empty: bool = False  # empty text is a value: what is not there is null, or in CSV a field without quotes


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    resource: Resource
    mode: ImportWriteMode = "insert"
    validate_only: bool = False
    duplicates: DuplicateRule = "error"
    mapping: dict[str, str] = field(default_factory=dict)  # column of the file -> field
    columns: tuple[str, ...] = ()  # of the file, in its order
    spreadsheet_safe: bool = False
    keep_empty: bool = False
    documents: bool = False  # a text in a field of JSON is a document itself, and not how one is written

    @property
    def ordered_mapping(self) -> dict[str, str]:
        """The mapping in the order of the file, in which errors of a row are reported. JSONB does not keep it."""
        return {column: self.mapping[column] for column in self.columns if column in self.mapping} | self.mapping

    @property
    def mapped_fields(self) -> tuple[str, ...]:
        """The fields that the file has, in the resource's order."""
        mapped = set(self.mapping.values())
        return tuple(name for name in self.resource.field_names if name in mapped)

    @property
    def unique_field_sets(self) -> tuple[tuple[str, ...], ...]:
        """Sets of fields that no two rows of the file may share, as far as the file has them; the key first."""
        given, key = set(self.mapped_fields), self.resource.key
        sets = [key, *(fields for fields in self.resource.unique if fields != key)]
        return tuple(fields for fields in sets if fields and given.issuperset(fields))

    def is_self_reference(self, reference: Reference) -> bool:
        """Whether it leads into the very table that is imported, so that other rows of the file may be there for it."""
        return reference.table == self.resource.table and set(self.mapped_fields).issuperset(reference.fields)

    def keeps_null(self, field: Field) -> bool:
        """Whether nothing is NULL there, and no default stands for it."""
        return self.keep_empty and field.nullable

    def get_default_if_omitted(self, field: Field) -> str | None:
        """The default for a row that does not name a field, where it is none for a field that is named and nothing."""
        return field.default if self.keeps_null(field) else None

    @property
    def may_wait_for_rows(self) -> bool:
        """Whether a row may have to wait for another of the file. In a dry run it would wait forever."""
        return not self.validate_only and any(map(self.is_self_reference, self.resource.references))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportParams:
    """What the parameters of an import job hold.

    A file that a worker downloads has a request and a resource first; its plan follows when its columns are known.
    """

    plan: ImportPlan | None = None
    request: ImportRequest | None = None
    resource: Resource | None = None
    layout: FileLayout | None = None  # of a downloaded file

    @classmethod
    def from_json(cls, params: Mapping[str, Any]) -> Self:
        layout = params.get("layout")
        return cls(
            plan=_convert_if_given(params.get("plan"), ImportPlan),
            request=_convert_if_given(params.get("request"), ImportRequest),
            resource=_convert_if_given(params.get("resource"), Resource),
            layout=FileLayout.from_json(layout) if layout else None,
        )

    @property
    def plan_or_request(self) -> ImportPlan | ImportRequest:
        """The plan, or the request of a file that was not read yet."""
        return self.plan or self.request or ImportRequest()

    @property
    def target(self) -> Resource | None:
        return self.resource if self.plan is None else self.plan.resource


T = TypeVar("T")


def _convert_if_given(value: Any, type_: type[T]) -> T | None:
    return msgspec.convert(value, type_) if value else None


def make_import_plan(
    request: ImportRequest, resource: Resource, columns: Sequence[str], *, named_by_rows: bool = False
) -> ImportPlan:
    """The plan of an import of a file with these columns; InvalidColumns says all that is wrong with them at once.

    ``named_by_rows``: each record names its own fields, so that others than these may still come.
    """
    resource = replace(resource, key=request.key) if request.key else resource
    found = map_file_columns(request, resource, columns, named_by_rows=named_by_rows)
    if not found.is_valid:
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
    validate_plan(plan)
    return plan


def map_file_columns(
    request: ImportRequest, resource: Resource, columns: Sequence[str], *, named_by_rows: bool = False
) -> ColumnMapping:
    found = map_columns(columns, resource, request.mapping)
    if not named_by_rows:
        return found
    lacking = {f"there is no column for {name!r}, which is required" for name in found.missing}
    mapping = {name: name for name in resource.field_names if name not in found.mapping.values()} | found.mapping
    return replace(found, mapping=mapping, missing=[], problems=[one for one in found.problems if one not in lacking])


def validate_plan(plan: ImportPlan) -> None:
    """Refuse what could not work, before a row is read."""
    resource = plan.resource
    unknown = [name for name in resource.key if name not in resource.field_names]
    if unknown:
        raise InvalidInput(f"the key names {', '.join(unknown)}, which {resource.name} does not have")
    if plan.mode == "upsert":
        if not resource.key:
            raise InvalidInput(f"an upsert needs a key: say which fields identify a row of {resource.name}")
        if resource.key not in resource.unique:
            named = ", ".join(resource.key)
            raise InvalidInput(f"an upsert needs a unique index on ({named}); {resource.table} has none")
        lacking = [name for name in resource.key if name not in plan.mapped_fields]
        if lacking:
            raise InvalidInput(f"an upsert by {', '.join(resource.key)} needs a column for {', '.join(lacking)}")
    if not plan.mapped_fields:
        raise InvalidInput(f"no column of the file is a field of {resource.name}")
