"""Finds resources by name: declared resources and, for administrators, any table."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from time import monotonic
from typing import Any

from tidemill.core.errors import Forbidden, InvalidInput, InvalidSettings, UnknownResource, format_suggestion
from tidemill.core.file_format import ColumnType
from tidemill.core.principal import Role
from tidemill.runtime import Runtime
from tidemill.store.database import Connection, Database
from tidemill.tables.introspection.table_introspection import find_table, introspect_table
from tidemill.tables.resource import (
    BUILTIN_NORMALIZERS,
    LOWER_BOUND_RULES,
    UPPER_BOUND_RULES,
    Field,
    Reference,
    Resource,
    ResourceDeclaration,
    find_resource_problems,
    is_granted,
    to_comparable_bound,
)
from tidemill.tables.values.type_readers import TYPE_READERS
from tidemill.tables.values.value_formats import check_format_fits_field

_NARROWER_TYPES: dict[ColumnType, tuple[ColumnType, ...]] = {
    "text": ("integer", "number", "boolean", "date", "time", "timestamp", "uuid", "json"),
    "number": ("integer",),
}
_ORDERED_TYPES = ("integer", "number", "date", "time", "timestamp")
_TYPES_BY_RULE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("min_length", "max_length", "max_words", "pattern"), ("text", "other")),
    **dict.fromkeys(("minimum", "maximum", "above", "below"), _ORDERED_TYPES),
    "enum": ("text", "other", "integer", "number", "boolean", "date", "uuid"),
    "formats": ("date", "time", "timestamp"),
}
_DECLARED_RULE_NAMES = {"formats": "date_formats"}


class FieldTightener:
    """Applies declared rules to one field, and collects the rules that do not fit its column."""

    def __init__(self, field: Field, path: str) -> None:
        self.problems: list[str] = []
        self._field, self._path = field, path

    def tighten_by_rules(self, rules: Mapping[str, Any]) -> Field:
        if "type" in rules:
            self._field = replace(self._field, type=self._narrow_type(rules["type"]))
        # "default" and "required" come last, because "required" depends on the default.
        for name in sorted(rules, key=lambda name: (name == "required", name == "default")):
            if self._check_rule_fits_type(name):
                self._apply_declared_rule(name, rules[name])
        return self._field

    def _narrow_type(self, wanted: ColumnType) -> ColumnType:
        have = self._field.type
        if have not in (wanted, "other") and wanted not in _NARROWER_TYPES.get(have, ()):
            self._add_problem("type", f"a column of type {self._field.sql_type} cannot have the type {wanted}")
            return have
        return wanted

    def _check_rule_fits_type(self, name: str) -> bool:
        fits = self._field.type in _TYPES_BY_RULE.get(name, (self._field.type,))
        if not fits:
            self._add_problem(
                _DECLARED_RULE_NAMES.get(name, name), f"not allowed for a field of type {self._field.type}"
            )
        return fits

    def _apply_declared_rule(self, name: str, value: Any) -> None:
        if name == "required":
            self._apply_required(required=value)
        elif name == "enum":
            self._apply_enum(value)
        elif name in (*LOWER_BOUND_RULES, *UPPER_BOUND_RULES):
            self._apply_bound(name, value)
        elif name == "default":
            self._replace_attributes(default=value, required=False, filled=False)
        elif name != "type":
            self._replace_attributes(**{name: value})

    def _apply_required(self, *, required: bool) -> None:
        if required:
            self._replace_attributes(required=True, default=None, filled=False)
        elif self._field.required:
            self._add_problem("required", "the column is NOT NULL and has no default")

    def _apply_enum(self, values: tuple[str, ...]) -> None:
        known = self._field.enum
        unknown = [value for value in values if known and value not in known]
        if unknown:
            self._add_problem(
                "enum", f"the table does not allow {', '.join(unknown)}; allowed values are {', '.join(known)}"
            )
        self._replace_attributes(enum=values)

    def _apply_bound(self, name: str, value: Any) -> None:
        if not isinstance(value, int) and not _is_value_of_type(self._field.type, value):
            self._add_problem(name, f'"{value}" is not a valid {self._field.type}')
            return
        before = getattr(self._field, name)
        if before is not None:
            new, old = to_comparable_bound(self._field, value), to_comparable_bound(self._field, before)
            if new < old if name in LOWER_BOUND_RULES else new > old:
                self._add_problem(name, f"{value} is less strict than the table's limit, {before}")
                return
        self._replace_attributes(**{name: value})

    def _replace_attributes(self, **changes: Any) -> None:
        self._field = replace(self._field, **changes)

    def _add_problem(self, name: str, problem: str) -> None:
        self.problems.append(f"{self._path}.{name}: {problem}")


def _is_value_of_type(type_: ColumnType, text: str) -> bool:
    readers: dict[str, Any] = {
        "integer": int,
        "number": Decimal,
        "date": date.fromisoformat,
        "time": time.fromisoformat,
        "timestamp": datetime.fromisoformat,
    }
    try:
        readers[type_](text)
    except (ValueError, InvalidOperation):
        return False
    return True


FieldNames = tuple[str, ...]


def merge_declaration(declared: ResourceDeclaration, introspected: Resource) -> Resource:
    """Return the merged resource; InvalidSettings lists every conflict between the declaration and the table."""
    merging = _DeclarationMerge(declared, introspected)
    resource = merging.build_resource()
    problems = merging.problems or [
        f"{declared.config_path}: {problem}" for problem in find_resource_problems(resource)
    ]
    if problems:
        listed = "\n".join(f"  - {line}" for line in problems)
        raise InvalidSettings(f'Resource "{declared.name}" does not match table {introspected.table}:\n{listed}')
    return resource


class _DeclarationMerge:
    def __init__(self, declared: ResourceDeclaration, found: Resource) -> None:
        self.problems: list[str] = []
        self._declared, self._introspected = declared, found
        self._columns = {field.column: field for field in found.fields}
        self._names = {one.column: one.name for one in declared.fields}

    def build_resource(self) -> Resource:
        declared, found = self._declared, self._introspected
        fields = self._merge_fields()
        written = {field.column for field in fields}
        return Resource(
            name=declared.name,
            table=found.table,
            fields=fields,
            key=self._choose_key(written),
            unique=self._merge_unique_sets(written),
            indexed=tuple(self._list_unique_sets_of_table(written)),
            nulls_equal=tuple(
                self._convert_columns_to_field_names(one) for one in found.nulls_equal if written.issuperset(one)
            ),
            references=self._merge_references(written),
            conditions=declared.conditions,
            formats=self._check_formats(fields),
            assume=declared.assume,
            constants=self._check_constants(fields),
            constants_from=declared.constants_from,
            computed=declared.computed,
            skip=declared.skip,
            undo=declared.undo,
            read=declared.read,
            write=declared.write,
        )

    def _merge_fields(self) -> tuple[Field, ...]:
        declared = {one.column: one for one in self._declared.fields}
        if len(declared) < len(self._declared.fields):
            self._add_problem("fields", "two fields have the same column")
        for one in self._declared.fields:
            if one.column not in self._columns:
                self._report_missing_column(f"fields.{one.name}", one.column)
        for column in self._declared.columns or ():
            if column not in self._columns:
                self._report_missing_column("columns", column)
        fields = []
        for column, field in self._columns.items():
            if column in declared:
                stricter = FieldTightener(field, f"{self._declared.config_path}.fields.{declared[column].name}")
                fields.append(replace(stricter.tighten_by_rules(declared[column].rules), name=declared[column].name))
                self.problems += stricter.problems
            elif self._declared.columns is None or column in self._declared.columns:
                fields.append(field)
            elif field.required and self._declared.write:  # a read-only resource can omit required columns
                self._add_problem("columns", f'the table requires column "{column}". Include it')
        return tuple(fields)

    def _check_formats(self, fields: tuple[Field, ...]) -> Mapping[str, str]:
        """Report formats that do not fit the type of their field."""
        known = {field.name: field for field in fields}
        for name, format_name in self._declared.formats.items():
            try:
                if name in known:  # unknown fields are reported with those of other keys
                    check_format_fits_field(format_name, known[name])
            except InvalidInput as error:
                self._add_problem(f"formats.{name}", str(error))
        return self._declared.formats

    def _check_constants(self, fields: tuple[Field, ...]) -> Mapping[str, str]:
        """Report constants that are not values of their field. An import checks the other rules of the field."""
        for field in fields:
            text = self._declared.constants.get(field.name)
            if text is None or field.type == "array" or field.formats or field.normalize:
                continue
            for reason in TYPE_READERS[field.type](field, [text.strip()])[1].values():
                self._add_problem(f"constants.{field.name}", reason)
            if field.enum and text not in field.enum:
                self._add_problem(f"constants.{field.name}", f"must be one of {', '.join(field.enum)}")
        return self._declared.constants

    def _report_missing_column(self, path: str, column: str) -> None:
        hint = format_suggestion(column, self._columns)
        self._add_problem(path, f'table {self._introspected.table} has no writable column "{column}"{hint}')

    def _merge_unique_sets(self, written: set[str]) -> tuple[FieldNames, ...]:
        """Return the unique sets of the table and of the declaration. The database does not enforce declared sets."""
        by_field = [(one.name,) for one in self._declared.fields if one.unique]
        return tuple(dict.fromkeys([*self._list_unique_sets_of_table(written), *by_field, *self._declared.unique]))

    def _list_unique_sets_of_table(self, written: set[str]) -> list[FieldNames]:
        return [
            self._convert_columns_to_field_names(one) for one in self._introspected.unique if written.issuperset(one)
        ]

    def _choose_key(self, written: set[str]) -> FieldNames:
        """Return the key in the order of its unique index, which upserts need. The declared order does not matter."""
        wanted = self._declared.key
        if wanted is None:
            return (
                self._convert_columns_to_field_names(self._introspected.key)
                if written.issuperset(self._introspected.key)
                else ()
            )
        same = [one for one in self._list_unique_sets_of_table(written) if set(one) == set(wanted)]
        if not same:
            self._add_problem("key", f"table {self._introspected.table} has no unique index on ({', '.join(wanted)})")
        return same[0] if same else wanted

    def _merge_references(self, written: set[str]) -> tuple[Reference, ...]:
        by_table = [
            replace(one, fields=self._convert_columns_to_field_names(one.fields))
            for one in self._introspected.references
            if written.issuperset(one.fields)
        ]
        return tuple(dict.fromkeys([*by_table, *self._declared.references]))

    def _convert_columns_to_field_names(self, columns: FieldNames) -> FieldNames:
        return tuple(self._names.get(column, column) for column in columns)

    def _add_problem(self, path: str, problem: str) -> None:
        self.problems.append(f"{self._declared.config_path}.{path}: {problem}")


CATALOG_CACHE_S = 5.0  # workers load the resource for every batch


class ResourceRegistry:
    """The declared resources, with a short cache of the catalog."""

    def __init__(self, declared: Mapping[str, ResourceDeclaration]) -> None:
        self._declared = dict(declared)
        self._cache: dict[tuple[str, bool], tuple[float, Resource]] = {}

    async def get_writable_resource(self, db: Database, role: Role, name: str) -> Resource:
        """Return a resource that this role can import into; an administrator can use any table.

        Raises:
            Forbidden: The role can read the resource, but not write it.
            UnknownResource: The resource does not exist, or the role has no grant.
        """
        resource = await self.get_resource(db, name, any_table=role is Role.ADMIN)
        if is_granted(role, resource, "write"):
            return resource
        if is_granted(role, resource, "read"):
            raise Forbidden(f'You have no write access to resource "{name}"')
        raise UnknownResource(f'Unknown resource "{name}"')

    async def get_readable_resource(self, db: Database, role: Role, name: str) -> Resource:
        """Return a resource that this role can export. Raises as ``get_writable_resource`` does."""
        resource = await self.get_resource(db, name, any_table=role is Role.ADMIN, for_reading=True)
        if is_granted(role, resource, "read"):
            return resource
        if is_granted(role, resource, "write"):
            raise Forbidden(f'You have no read access to resource "{name}"')
        raise UnknownResource(f'Unknown resource "{name}"')

    async def get_resource(
        self, db: Database, name: str, *, any_table: bool = False, for_reading: bool = False
    ) -> Resource:
        """Return a declared resource or, with ``any_table``, a table as a resource.

        With ``for_reading``, include views and columns that cannot be written.
        """
        seen = self._cache.get((name, for_reading))
        if seen is not None and monotonic() - seen[0] < CATALOG_CACHE_S and (any_table or name in self._declared):
            return seen[1]
        if name in self._declared:
            resource = await db.read_snapshot(_introspect_declared_table, self._declared[name], for_reading)
        elif any_table:
            resource = await db.read_snapshot(_introspect_table_by_name, name, for_reading)
        else:
            raise UnknownResource(f'Unknown resource "{name}"')
        self._cache[name, for_reading] = (monotonic(), resource)
        return resource

    def invalidate(self, name: str) -> None:
        """Read the catalog again next time, because the table has changed."""
        for reads in (False, True):
            self._cache.pop((name, reads), None)

    async def find_declaration_problems(self, db: Database) -> list[str]:
        """Return every conflict between the declarations and the database."""
        problems = []
        for name, declared in self._declared.items():
            try:
                await self.get_resource(db, name, for_reading=not declared.write)
            except InvalidSettings as error:
                problems.append(str(error))
        return problems

    def list_allowed(self, role: Role) -> list[ResourceDeclaration]:
        """Return the declarations that this role can read or write."""
        return [
            one for one in self._declared.values() if is_granted(role, one, "read") or is_granted(role, one, "write")
        ]


async def _introspect_declared_table(conn: Connection, declared: ResourceDeclaration, reads: bool) -> Resource:
    try:
        table = await find_table(conn, declared.table, for_reading=reads)
    except InvalidInput as error:
        raise InvalidSettings(f"{declared.config_path}.table: {error}") from None
    return merge_declaration(declared, await introspect_table(conn, table, for_reading=reads))


async def _introspect_table_by_name(conn: Connection, name: str, reads: bool) -> Resource:
    return await introspect_table(conn, await find_table(conn, name, for_reading=reads), for_reading=reads)


def make_resource_registry(runtime: Runtime) -> ResourceRegistry:
    """Return the resources of ``tidemill.toml`` and of the mill; InvalidSettings lists every error."""
    from tidemill.tables.config import parse_resource_declarations  # noqa: PLC0415  most processes have no resources

    declared = runtime.declarations
    parse = partial(parse_resource_declarations, normalizers=[*BUILTIN_NORMALIZERS, *declared.normalizers])
    return ResourceRegistry(runtime.load_section(parse) | parse({"resources": declared.resources}))
