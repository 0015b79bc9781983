"""Plans the lookups of an import: which columns of a referenced table the caller may search, and which fit the file."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemill.core.errors import Forbidden, InvalidInput, InvalidSettings, format_suggestion
from tidemill.core.json_input import JsonObject
from tidemill.core.principal import Role
from tidemill.imports.column_mapping import ColumnMapping, find_fields_named_by, quote_names
from tidemill.imports.import_plan import ImportPlan, ImportRequest
from tidemill.imports.lookup_resolver import LookupResolver
from tidemill.imports.target_table import TableRejection, TargetTable, TargetUnusable
from tidemill.imports.validation.row_checker import CheckedRows
from tidemill.runtime import Runtime
from tidemill.store.database import Connection, Database, is_transient
from tidemill.tables.introspection.table_introspection import list_immediate_unique_sets
from tidemill.tables.resource import (
    Field,
    Lookup,
    Reference,
    Resource,
    ResourceDeclaration,
    is_granted,
    normalize_column_name,
)
from tidemill.tables.resource_registry import ResourceRegistry, make_resource_registry

SEARCHED_COLUMNS_MAX = 8  # of one lookup
LOOKUP_FIELDS_MAX, LOOKUP_CHOICES_MAX = 50, 50  # fields, and columns of a referenced table, that a preview offers
PREVIEW_LOOKUP_TIMEOUT_S = 2.0  # of a preview: without an index, a lookup reads the referenced table
_SEARCHABLE_TYPES = ("text", "integer", "number", "date", "time", "timestamp", "uuid", "other")
ColumnSets = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class LookupChoices:
    """The columns by which a caller may look up the rows that a field refers to."""

    field: str
    table: str
    columns: tuple[str, ...]
    unique: ColumnSets  # the sets of these columns with a unique index
    creatable: ColumnSets  # the unique sets by which the caller may create missing rows
    proposal: str | None  # the only unique text column

    def to_json(self) -> JsonObject:
        return {name: getattr(self, name) for name in ("field", "table", "columns", "unique", "creatable", "proposal")}


@dataclass(frozen=True, slots=True)
class LookupProposal:
    """An unknown column of the file that may name the rows that a field refers to."""

    column: str
    field: str
    table: str
    by: str

    def describe(self) -> str:
        return (
            f'Column "{self.column}" may name the rows of {self.table} that "{self.field}" refers to. '
            f'To find them by "{self.by}", set the lookup {self.field}={self.by}.'
        )

    def to_json(self) -> JsonObject:
        """Return the proposal as a preview shows it."""
        return {"column": self.column, "field": self.field, "table": self.table, "by": self.by}


class LookupPlanner:
    """Plans lookups for a caller. ``role``: None is a local caller, who may search every table."""

    def __init__(self, db: Database, resources: ResourceRegistry, role: Role | None) -> None:
        self._db = db
        self._resources = resources
        self._role = role

    async def plan(self, resource: Resource, request: ImportRequest) -> Resource:
        """Return the resource with the lookups that it declares or the request sets.

        Raises:
            InvalidInput: A field has no reference, a column does not exist, or rows cannot be created.
            Forbidden: The role has no grant for the searched columns, may not create rows, or may not drop a declared
                lookup.
        """
        wanted = {one.name: (one.lookup, one.create_missing) for one in resource.fields if one.lookup}
        for name, columns in request.lookups.items():
            wanted[_resolve_field(name, resource, request)] = (tuple(columns), False)
        for name in request.create_missing:
            field = _resolve_field(name, resource, request)
            by, _ = wanted.get(field, ((), False))
            if not by:
                raise InvalidInput(f'Cannot create missing rows for "{name}": set a lookup of this field, too')
            wanted[field] = (by, True)
        set_by_constants = {*request.constants, *resource.constants, *resource.constants_from}
        constants = {one.column for one in resource.fields if one.name in set_by_constants}
        self._check_declared_lookups_kept(resource, wanted, {*request.constants, *request.computed})
        lookups = [
            await self._plan_lookup(resource, name, by, constants, create=create)
            for name, (by, create) in wanted.items()
            if by
        ]
        return replace(resource, lookups=_order_lookups(resource, lookups))

    def _check_declared_lookups_kept(
        self, resource: Resource, wanted: Mapping[str, tuple[tuple[str, ...], bool]], set_by_rules: set[str]
    ) -> None:
        """Raise Forbidden if a request drops a declared lookup by a forced constant, and could refer to any row."""
        forced = {*resource.constants, *resource.constants_from}
        columns = {one.column for one in resource.fields if one.name in forced}
        for own in resource.fields if not self._is_unlimited else ():
            is_dropped = own.name in set_by_rules - forced or not wanted.get(own.name, (own.lookup,))[0]
            if is_dropped and columns.intersection(own.lookup):
                raise Forbidden(
                    f'Keep the lookup of field "{own.name}": resource "{resource.name}" restricts it to rows with its '
                    f"own values of {quote_names(sorted(columns.intersection(own.lookup)))}"
                )

    async def _plan_lookup(
        self, resource: Resource, name: str, by: tuple[str, ...], constants: Collection[str], *, create: bool
    ) -> Lookup:
        reference = _get_reference(resource, name)
        where = f'Invalid lookup of field "{name}" in {reference.table}'
        if len(set(by)) < len(by) or len(by) > SEARCHED_COLUMNS_MAX:
            raise InvalidInput(f"{where}: name 1 to {SEARCHED_COLUMNS_MAX} different columns")
        own = resource.get_field(name)
        granted = await self._authorize_and_find_resource(resource, name, reference, by, create=create)
        searched = await self._read_searched_fields(reference, granted)
        for column in by:
            if column not in searched:
                raise InvalidInput(f'{where}: it has no column "{column}"{format_suggestion(column, searched)}')
        constants = [one for one in searched if one in constants and one != own.column]
        problem = _find_problem_of_constants(by, constants)
        if problem is not None:
            raise InvalidInput(f"{where}: {problem}")
        lookup = Lookup(
            field=name,
            table=reference.table,
            key=reference.columns[0],
            by=_make_input_fields(resource, own, [searched[column] for column in by]),
            create=create,
        )
        try:
            await self._db.run(_look_up_nothing, resource, lookup)
        except TargetUnusable as error:
            raise InvalidInput(f"{where}: {error}") from error
        problem = await self._find_problem(resource, reference, lookup, granted)
        if problem is not None:
            raise InvalidInput(f"{where}: {problem}")
        return lookup

    async def check_allowed(self, resource: Resource) -> None:
        """Raise Forbidden if the caller may no longer make the lookups of an earlier import.

        The current declaration of the resource decides, and not the one that the import has stored.
        """
        if self._role is None or self._is_unlimited or not resource.lookups:
            return
        current = await self._resources.get_writable_resource(self._db, self._role, resource.name)
        for one in resource.lookups:
            reference = Reference((one.field,), one.table, (one.key,))
            await self._authorize_and_find_resource(current, one.field, reference, one.columns, create=one.create)

    async def _authorize_and_find_resource(
        self, resource: Resource, name: str, reference: Reference, by: tuple[str, ...], *, create: bool
    ) -> Resource | None:
        """Return the resource of the referenced table that the caller may use, if any; else Forbidden.

        The declaration of a field allows its own lookup. A local caller and an admin may use any table.
        """
        granted = await self._find_granted_resource(resource, reference, by, writes=create)
        is_declared = any((one.name, one.lookup) == (name, by) for one in resource.fields)
        if granted is None and not self._is_unlimited and (create or not is_declared):
            denied = "create missing rows" if create else f"search {quote_names(by)}"
            rules = "constants, computed columns and skip rules" if create else "constants"
            remedy = f"Ask for {'write' if create else 'read'} access to a resource of this table without {rules}."
            raise Forbidden(f'Invalid lookup of field "{name}" in {reference.table}: you may not {denied}. {remedy}')
        return granted

    async def _find_problem(
        self, resource: Resource, reference: Reference, lookup: Lookup, granted: Resource | None
    ) -> str | None:
        is_own_table = reference.table == resource.table
        if is_own_table and set(lookup.columns) not in map(set, await self._list_unique_sets(reference)):
            return f"rows of the imported table need a unique index on ({', '.join(lookup.columns)})"
        if not lookup.create:
            return None
        problem = await self._find_create_problem(reference, lookup.columns, granted)
        problem = "it is the table of the import" if is_own_table else problem
        return problem and f"cannot create missing rows, because {problem}"

    @property
    def _is_unlimited(self) -> bool:
        return self._role in (None, Role.ADMIN)

    async def _find_granted_resource(
        self, resource: Resource, reference: Reference, by: Iterable[str], *, writes: bool
    ) -> Resource | None:
        """Return the first declared resource of the table that exposes these columns to the caller.

        A lookup does not apply the forced rules of another resource, so a resource with such rules allows none. The
        resource of the import may have constants: its lookups search by their values.
        """
        wanted = normalize_column_name(reference.table.name)
        for declared in self._resources.list_allowed(self._role or Role.ADMIN):
            if not normalize_column_name(declared.table).endswith(wanted):
                continue
            if self._role is not None and writes and not is_granted(self._role, declared, "write"):
                continue
            if not self._is_unlimited and _has_forced_rules(declared, resource, writes=writes):
                continue
            try:
                found = await self._resources.get_resource(self._db, declared.name, for_reading=True)
            except InvalidSettings:  # another resource does not match its table
                continue
            if found.table == reference.table and {one.column for one in found.fields}.issuperset(by):
                return found
        return None

    async def _read_searched_fields(self, reference: Reference, granted: Resource | None) -> dict[str, Field]:
        """Return the fields of the table by column, with the rules of the resource that the caller may use."""
        table = await self._resources.get_resource(self._db, str(reference.table), any_table=True, for_reading=True)
        return {one.column: one for one in (*table.fields, *(() if granted is None else granted.fields))}

    async def _list_unique_sets(self, reference: Reference) -> list[tuple[str, ...]]:
        return await self._db.run(list_immediate_unique_sets, reference.table)

    async def _find_create_problem(
        self, reference: Reference, by: Sequence[str], granted: Resource | None
    ) -> str | None:
        """Return why rows with only these values cannot be created."""
        if set(by) not in map(set, await self._list_unique_sets(reference)):
            return f"the table has no unique index on ({', '.join(by)})"
        table = await self._resources.get_resource(self._db, str(reference.table), any_table=True)
        if not {one.column for one in table.fields}.issuperset(by):
            return "the table generates a searched column"
        fields = {one.column: one for one in (*table.fields, *(() if granted is None else granted.fields))}
        lacking = [one.column for one in fields.values() if one.is_required_for_insert and one.column not in by]
        return f"the table requires a value for {quote_names(lacking)}, too" if lacking else None

    async def list_choices(self, resource: Resource) -> list[LookupChoices]:
        """Return how the caller may look up each field that is a reference of one column."""
        names = dict.fromkeys(one.fields[0] for one in resource.references if len(one.fields) == 1)
        found = [await self._list_choices_of_field(resource, name) for name in list(names)[:LOOKUP_FIELDS_MAX]]
        return [one for one in found if one is not None]

    async def _list_choices_of_field(self, resource: Resource, name: str) -> LookupChoices | None:
        try:
            reference = _get_reference(resource, name)
            granted = await self._find_granted_resource(resource, reference, (), writes=False)
            searched = await self._read_searched_fields(reference, granted)
        except InvalidInput:  # it has several references, or the table may not be used
            return None
        own = resource.get_field(name)
        allowed = set(own.lookup) | ({one.column for one in granted.fields} if granted is not None else set())
        fields = [
            one
            for one in searched.values()
            if one.type in _SEARCHABLE_TYPES
            and one.column != reference.columns[0]
            and (self._is_unlimited or one.column in allowed)
        ]
        if not fields:
            return None
        columns = [one.column for one in fields]
        sets = await self._list_unique_sets(reference)
        unique = tuple(each for each in dict.fromkeys(sets) if set(columns).issuperset(each))
        writable = await self._find_granted_resource(resource, reference, (), writes=True)
        may_write = self._is_unlimited or writable is not None
        creatable = [each for each in unique if may_write and reference.table != resource.table]
        texts = {one.column for one in fields if one.type == "text" or "citext" in one.sql_type}
        proposals = [each[0] for each in unique if len(each) == 1 and each[0] in texts]
        return LookupChoices(
            field=name,
            table=str(reference.table),
            columns=tuple(columns[:LOOKUP_CHOICES_MAX]),
            unique=unique,
            creatable=tuple(
                [each for each in creatable if await self._find_create_problem(reference, each, granted) is None]
            ),
            proposal=proposals[0] if len(proposals) == 1 else None,
        )


def make_lookup_planner(runtime: Runtime, role: Role | None) -> LookupPlanner:
    return LookupPlanner(runtime.db, runtime.get(make_resource_registry), role)


def propose_lookups(
    choices: Sequence[LookupChoices], resource: Resource, mapped: ColumnMapping
) -> list[LookupProposal]:
    """Return a proposal for each unknown column that is named like one reference, if one column fits its texts."""
    taken = mapped.mapping.values()
    by_field = {one.field: one for one in choices if one.proposal is not None and one.field not in taken}
    proposals = []
    for column in mapped.unknown:
        fields = [name for name in find_fields_named_by(column, resource.references) if name in by_field]
        if len(fields) == 1:
            chosen = by_field[fields[0]]
            proposals.append(LookupProposal(column, chosen.field, chosen.table, str(chosen.proposal)))
    return proposals


def _resolve_field(name: str, resource: Resource, request: ImportRequest) -> str:
    """Return the field that a request names directly, by a column that is mapped to it, or by the name of its rows."""
    if name in resource.field_names:
        return name
    mapped = request.mapping.get(name, "")
    if mapped in resource.field_names:
        return mapped
    aliases = [
        field.name
        for field in resource.fields
        if normalize_column_name(name) in map(normalize_column_name, field.aliases)
    ]
    fields = dict.fromkeys(aliases or find_fields_named_by(name, resource.references))
    if len(fields) != 1:
        hint = format_suggestion(name, resource.field_names)
        raise InvalidInput(f'Invalid lookup of "{name}": it is not a field of {resource.name}{hint}')
    return next(iter(fields))


def _get_reference(resource: Resource, name: str) -> Reference:
    """Return the only reference that consists of this field."""
    found = list(dict.fromkeys(one for one in resource.references if one.fields == (name,)))
    if len(found) == 1:
        return found[0]
    reason = "no foreign key" if not found else f"{len(found)} foreign keys"
    raise InvalidInput(f'Invalid lookup of field "{name}": {resource.name} has {reason} of this column alone')


def _has_forced_rules(declared: ResourceDeclaration, resource: Resource, *, writes: bool) -> bool:
    """Return whether searching, or creating rows, in the table could evade rules that the declaration forces."""
    if writes and (declared.computed or declared.skip):
        return True
    return bool(declared.constants or declared.constants_from) and (writes or declared.name != resource.name)


def _find_problem_of_constants(by: Sequence[str], constants: Sequence[str]) -> str | None:
    """Return why a lookup does not search by these columns with the values that the import sets in every row.

    These values separate, for example, the rows of two tenants.
    """
    others = [column for column in by if column not in constants]
    lacking = [column for column in constants if column not in by]
    if lacking:
        wanted = ",".join([*others, *(column for column in by if column in constants), *lacking])
        return f"the import sets {quote_names(lacking)} in every row, so search by these columns, too: {wanted}"
    if by[0] not in constants:
        return None
    remedy = f"Search in this order: {','.join([*others, *constants])}" if others else "Search by another column first"
    return f'the column of the file has the texts of "{by[0]}", which the import sets in every row. {remedy}'


def _make_input_fields(resource: Resource, own: Field, searched: Sequence[Field]) -> tuple[Field, ...]:
    """Return the searched columns as fields of the file.

    The first has the texts of the field itself. Each other one has its own column in the file, or is another field of
    the resource, whose column has the same name.
    """
    first, *others = searched
    names = {one.column: one.name for one in resource.fields}
    return (
        replace(
            _trim(first),
            name=own.name,
            required=own.required,
            nullable=own.nullable,
            default=None,
            filled=own.filled,
            sensitive=own.sensitive or first.sensitive,
            aliases=own.aliases,
        ),
        *(
            replace(
                _trim(other),
                name=names.get(other.column, f"{own.name}.{other.column}"),
                required=False,
                default=None,
                filled=False,
                sensitive=own.sensitive or other.sensitive,
                aliases=(),
            )
            for other in others
        ),
    )


def _trim(field: Field) -> Field:
    """Whitespace around a name has no meaning, and the file can have it where the table does not."""
    return field if "trim" in field.normalize else replace(field, normalize=("trim", *field.normalize))


def _order_lookups(resource: Resource, lookups: Sequence[Lookup]) -> tuple[Lookup, ...]:
    """Return each lookup after those that it searches by; InvalidInput if rows of both may be missing."""
    by_field = {lookup.field: lookup for lookup in lookups}
    for lookup in lookups:
        for part in lookup.by[1:]:
            other = by_field.get(part.name)
            if other is not None and (other.create or any(one.name in by_field for one in other.by[1:])):
                raise InvalidInput(
                    f'Invalid lookup of field "{lookup.field}" of {resource.name}: it searches by "{part.name}", whose '
                    "lookup creates rows or depends on a third lookup"
                )
    return tuple(sorted(lookups, key=lambda one: any(part.name in by_field for part in one.by[1:])))


async def _look_up_nothing(conn: Connection, resource: Resource, lookup: Lookup) -> None:
    """Raise TargetUnusable if PostgreSQL cannot compare a searched column, or the user may not read it."""
    await TargetTable(conn, resource).find_rows_by_lookup(lookup, [])


def _list_complete_lookups(plan: ImportPlan, checked: CheckedRows) -> tuple[Lookup, ...]:
    """Return the lookups in other tables whose searched columns all have values, directly or by another lookup."""
    complete: list[Lookup] = []
    unresolved = {one.field for one in plan.resource.lookups}
    for lookup in plan.lookups:
        _, *others = [one.name for one in lookup.by]
        given = checked.columns.keys() - unresolved
        if lookup.table != plan.resource.table and lookup.field in checked.columns and given.issuperset(others):
            complete.append(lookup)
            unresolved.discard(lookup.field)
    return tuple(complete)


async def count_found_values(db: Database, plan: ImportPlan, checked: CheckedRows) -> dict[str, dict[str, int]]:
    """Look up the references of the rows of a preview, and add errors to them; return the numbers of values by field.

    Rows of the imported table are not looked up, as the file can contain them. A lookup that takes too long, or that
    the table rejects, is left to the import. A lookup without all its columns is a problem of the preview.
    """
    plan = replace(plan, resource=replace(plan.resource, lookups=_list_complete_lookups(plan, checked)))
    if not plan.lookups:
        return {}
    before = {one.field: checked.columns[one.field] for one in plan.lookups}
    try:
        async with db.transaction(read_only=True, statement_timeout_s=PREVIEW_LOOKUP_TIMEOUT_S) as conn:
            target = TargetTable(conn, plan.resource, plan.keeps_null)
            resolver = LookupResolver(target, plan, checked)
            async with target.open_read_savepoint():
                # Rows with other errors, too.
                await resolver.resolve([row for row in range(checked.count) if row not in checked.skipped])
    except Exception as error:
        if not isinstance(error, TableRejection | TargetUnusable) and not is_transient(error):
            raise
        checked.columns |= before
        return {}
    return {one.field: resolver.count_values(one.field) for one in plan.lookups}
