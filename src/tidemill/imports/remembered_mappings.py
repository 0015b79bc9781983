"""Remembers how files were imported, and proposes the same mapping for files with the same or with similar columns."""

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, TypedDict, get_type_hints
from uuid import UUID

import msgspec

from tidemill.core.errors import Forbidden, UnknownEntity
from tidemill.core.json_input import JsonObject
from tidemill.core.list_pages import BIGINT_SAFE_MAX, ListOrder, Page, parse_cursor_timestamp, parse_number
from tidemill.core.principal import Principal
from tidemill.imports.column_mapping import ERROR_FILE_COLUMNS, map_columns
from tidemill.imports.import_plan import (
    ImportPlan,
    ImportRequest,
    find_fields_read_by_forced_rules,
    list_fields_closed_to_columns,
)
from tidemill.store.database import Connection, Database
from tidemill.store.statements import fetch_records, make_sql_loader
from tidemill.tables.resource import Resource, normalize_column_name

sql = make_sql_loader("tidemill.imports")

REMEMBERED_OPTIONS = (
    "translations",
    "formats",
    "constants",
    "computed",
    "skip",
    "lookups",
    "create_missing",
)  # fields of ImportRequest, besides the mapping
REMEMBERED_MAX_BYTES = 256 << 10  # of one mapping with its columns and options
REMEMBERED_PER_OWNER_MAX, TRIMMED_AT_ONCE_MAX = 500, 10_000
COMPARED_MAPPINGS_MAX = 50  # recent mappings that are compared with other columns
SIMILAR_COLUMNS_MIN = 0.5  # share of equal columns
RENAMED_NAME_SIMILARITY_MIN = 0.6
COMPARED_RENAMES_MAX = 50  # new and missing columns; with more, the files have little in common
MAPPINGS_ORDER = ListOrder("import_mappings", (parse_cursor_timestamp, parse_number))


class ProbableRename(TypedDict):
    """A new column that may be a missing one under another name."""

    column: str
    before: str
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class RememberedMapping:
    """How an owner imported files with these columns."""

    id: int
    owner_id: int
    owner: str
    resource: str
    columns: list[str]
    options: JsonObject
    shared: bool
    uses: int
    job_key: str
    used_at: datetime

    @property
    def mapping(self) -> dict[str, str]:
        """The field of each column, empty for ignored columns."""
        return dict(self.options.get("mapping", {}))

    def copy_without_constants(self) -> "RememberedMapping":
        """Return the mapping as other users see it: its constants, such as a tenant, are not theirs."""
        return replace(self, options={name: value for name, value in self.options.items() if name != "constants"})

    def to_json(self) -> JsonObject:
        names = ("id", "owner", "resource", "columns", "options", "shared", "uses", "job_key", "used_at")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class MappingProposal:
    """A request, completed from a remembered mapping, and the differences between the columns."""

    source: RememberedMapping
    request: ImportRequest
    layout: JsonObject
    new: list[str]
    missing: list[str]
    renamed: list[ProbableRename]

    def copy_without_lookups(self, request: ImportRequest, resource: Resource) -> "MappingProposal":
        """Return the proposal with the lookups of ``request`` only, and its rules for fields with declared lookups."""
        declared = {one.name for one in resource.fields if one.lookup}
        own = replace(
            self.request,
            lookups=request.lookups,
            create_missing=request.create_missing,
            constants={name: one for name, one in self.request.constants.items() if name not in declared}
            | request.constants,
            computed={name: one for name, one in self.request.computed.items() if name not in declared}
            | request.computed,
        )
        return replace(self, request=own)

    @property
    def is_exact(self) -> bool:
        return not self.new and not self.missing

    @property
    def is_noteworthy(self) -> bool:
        """Whether the import differs from one without memory, or its columns from those of the last one."""
        mapping = self.source.mapping.items()
        has_own_names = any(normalize_column_name(column) != normalize_column_name(field) for column, field in mapping)
        return has_own_names or not self.is_exact or bool(self.source.options.keys() - {"mapping"})

    def to_json(self) -> JsonObject:
        source = self.source.to_json()
        return {
            **{name: source[name] for name in source if name not in ("columns", "options")},
            "exact": self.is_exact,
            "new": self.new,
            "missing": self.missing,
            "renamed": self.renamed,
            "request": build_remembered_options(msgspec.to_builtins(self.request)),
            "layout": self.layout,
        }


def fingerprint_columns(columns: Iterable[str]) -> bytes:
    """Return a hash of the columns that ignores their order, case and punctuation."""
    return hashlib.sha256("\0".join(sorted(map(normalize_column_name, columns))).encode()).digest()


def build_remembered_options(request: Mapping[str, Any]) -> JsonObject:
    """Return the options of a request that a mapping remembers, without empty ones."""
    return {name: request[name] for name in ("mapping", *REMEMBERED_OPTIONS) if request.get(name)}


@dataclass(frozen=True, slots=True)
class MappingToRemember:
    """The parameters of the statement that remembers the mapping of a job, without the job."""

    resource: str
    fingerprint: bytes
    columns: list[str]
    options: JsonObject

    @classmethod
    def from_job_params(cls, params: Mapping[str, Any], plan: ImportPlan) -> "MappingToRemember | None":
        """Return what to remember; None for dry runs, files of watches, and mappings that are too large."""
        request = params.get("asked") or {}
        if plan.validate_only or "watch" in request.get("source", {}):
            return None
        columns = [name for name in plan.columns if name not in ERROR_FILE_COLUMNS]
        mapping = {name: plan.mapping.get(name, "") for name in columns if name in plan.mapping or name[:1] != "_"}
        layout = {name: value for name, value in request.get("layout", {}).items() if name != "keep_empty"}
        options = build_remembered_options({**request, "mapping": mapping}) | ({"layout": layout} if layout else {})
        if not columns or len(msgspec.json.encode([columns, options])) > REMEMBERED_MAX_BYTES:
            return None
        return cls(plan.resource.name, fingerprint_columns(columns), columns, options)


async def save_mapping(conn: Connection, job_id: UUID, mapping: MappingToRemember) -> None:
    """Remember the mapping of an import for its owner. Repeated calls for a job change nothing."""
    params = {
        "job_id": job_id,
        "resource": mapping.resource,
        "fingerprint": mapping.fingerprint,
        "columns": msgspec.json.encode(mapping.columns).decode(),
        "options": msgspec.json.encode(mapping.options).decode(),
    }
    await conn.execute(sql("mapping/save"), params)


async def delete_excess_mappings(conn: Connection) -> int:
    """Delete the oldest mappings of owners with more than ``REMEMBERED_PER_OWNER_MAX``."""
    params = {"most": REMEMBERED_PER_OWNER_MAX, "limit": TRIMMED_AT_ONCE_MAX}
    return (await conn.execute(sql("mapping/trim"), params)).rowcount


async def may_read_mappings(db: Database) -> bool:
    """Return whether the database has mappings that its current user may read. A preview also works without them."""
    return await db.read(_fetch_truth, "mapping/is_readable")


async def propose_mapping(
    db: Database, owner_id: int, resource: Resource, request: ImportRequest, columns: Sequence[str]
) -> MappingProposal | None:
    """Return the request, completed from the owner's or a shared mapping of the same or of the most similar columns.

    Options of the request take precedence. None: no mapping of this resource has at least half of the columns, or
    it would change nothing.
    """
    given = [name for name in columns if name not in ERROR_FILE_COLUMNS]
    params = {"owner_id": owner_id, "resource": resource.name, "fingerprint": fingerprint_columns(given)}
    found = await db.read(_fetch_mappings, "mapping/find_same", params)
    if not found:
        params["limit"] = COMPARED_MAPPINGS_MAX
        found = _find_most_similar(await db.read(_fetch_mappings, "mapping/find_recent", params), given)
    if not found:
        return None
    source = found[0]
    new, missing = _find_differences(source.columns, given)
    if source.owner_id != owner_id:
        source = source.copy_without_constants()
    completed = complete_request(request, source, given, resource)
    mapped = map_columns(given, resource, completed.mapping)
    fields_of_file = mapped.mapping.values()
    missing = [name for name in missing if source.mapping.get(name) and source.mapping[name] not in fields_of_file]
    layout = dict(source.options.get("layout", {}))
    has_same_mapping = mapped == map_columns(given, resource, request.mapping)
    if has_same_mapping and replace(completed, mapping=request.mapping) == request and not layout and not missing:
        return None
    unmapped = [name for name in new if name not in mapped.mapping]
    return MappingProposal(
        source=source,
        request=completed,
        layout=layout,
        new=new,
        missing=missing,
        renamed=_find_probable_renames(source, given, unmapped, missing, completed),
    )


def complete_request(
    request: ImportRequest, source: RememberedMapping, columns: Sequence[str], resource: Resource
) -> ImportRequest:
    """Return the request with the options of a mapping that it does not set itself."""
    known, taken = set(resource.field_names), set(request.mapping.values())
    forced = resource.forced_fields | request.constants.keys() | request.computed.keys()
    remembered = {normalize_column_name(column): field for column, field in source.mapping.items()}
    mapping = {
        column: field
        for column in columns
        if (field := remembered.get(normalize_column_name(column))) is not None
        and (not field or (known.intersection((field, field.rpartition(".")[0])) and field not in taken))
    }
    changes: dict[str, Any] = {"mapping": mapping | request.mapping}
    types = get_type_hints(ImportRequest)
    for option in fields(ImportRequest):
        stored, current = source.options.get(option.name), getattr(request, option.name)
        if option.name not in REMEMBERED_OPTIONS or not stored:
            continue
        if option.name == "create_missing":  # the request decides for fields that it sets a lookup of
            kept = [name for name in stored if name in known and name not in request.lookups]
            changes[option.name] = list(dict.fromkeys([*current, *kept]))
        elif isinstance(current, dict):  # by field, or by column
            names = known - forced if option.name in ("constants", "computed") else known.union(columns)
            if option.name in ("constants", "computed"):  # a column of the request fills some of these fields
                names -= taken & list_fields_closed_to_columns(ImportRequest(**{option.name: stored}), resource)
            if option.name == "computed":
                names -= set(find_fields_read_by_forced_rules(stored, resource))
            changes[option.name] = {name: stored[name] for name in stored if name in names} | current
        elif current == getattr(ImportRequest(), option.name):
            changes[option.name] = msgspec.convert(stored, types[option.name])
    return replace(request, **changes)


def _find_most_similar(mappings: Sequence[RememberedMapping], columns: Sequence[str]) -> list[RememberedMapping]:
    """Return the mapping with the largest share of equal columns; of equal ones, the most recent."""
    given, best, most = set(map(normalize_column_name, columns)), [], 0.0
    for one in mappings:
        known = set(map(normalize_column_name, one.columns))
        share = len(known & given) / max(len(known | given), 1)
        if share > most:
            best, most = [one], share
    return best if most >= SIMILAR_COLUMNS_MIN else []


def _find_differences(before: Sequence[str], columns: Sequence[str]) -> tuple[list[str], list[str]]:
    known, given = set(map(normalize_column_name, before)), set(map(normalize_column_name, columns))
    new = [name for name in columns if normalize_column_name(name) not in known]
    return new, [name for name in before if normalize_column_name(name) not in given]


def _find_probable_renames(
    source: RememberedMapping,
    columns: Sequence[str],
    new: Sequence[str],
    missing: Sequence[str],
    request: ImportRequest,
) -> list[ProbableRename]:
    """Pair new columns with missing ones: those with the most similar names first, then those at the same position."""
    taken = set(request.mapping.values())
    wanted = {name: field for name in missing if (field := source.mapping.get(name)) and field not in taken}
    if max(len(new), len(wanted)) > COMPARED_RENAMES_MAX:
        return []
    pairs = []
    for column in new:
        for before in wanted:
            names = normalize_column_name(column), normalize_column_name(before)
            similarity = difflib.SequenceMatcher(None, *names).ratio()
            is_same_place = columns.index(column) == source.columns.index(before) or (
                _find_neighbours(columns, column) == _find_neighbours(source.columns, before)
            )
            if similarity >= RENAMED_NAME_SIMILARITY_MIN or is_same_place:
                pairs.append((similarity + is_same_place, column, before, similarity))
    renames: dict[str, ProbableRename] = {}
    used: set[str] = set()
    for _, column, before, similarity in sorted(pairs, key=lambda pair: -pair[0]):
        if column not in renames and before not in used:
            used.add(before)
            reason = "similar name" if similarity >= RENAMED_NAME_SIMILARITY_MIN else "same position"
            renames[column] = {"column": column, "before": before, "field": wanted[before], "reason": reason}
    return [renames[column] for column in new if column in renames]


def _find_neighbours(columns: Sequence[str], column: str) -> tuple[str, str]:
    """Return the columns before and after a column."""
    names = ["", *map(normalize_column_name, columns), ""]
    place = columns.index(column) + 1
    return names[place - 1], names[place + 1]


async def list_mappings(
    db: Database, user: Principal | None, resources: Sequence[str], *, resource: str | None, limit: int, after: object
) -> Page[RememberedMapping]:
    """Return a page of the user's mappings and the shared ones of ``resources``; for an admin or None, of all users."""
    owner_id = None if user is None or user.is_admin else user.user_id
    at, last = datetime.max.replace(tzinfo=UTC), BIGINT_SAFE_MAX
    if after is not None:
        at, last = MAPPINGS_ORDER.parse_position(after, resource or "")
    params = {"owner_id": owner_id, "resources": list(resources), "resource": resource, "at": at, "id": last}
    found = await db.read(_fetch_mappings, "mapping/list", params | {"limit": limit + 1})
    found = [one if owner_id in (None, one.owner_id) else one.copy_without_constants() for one in found]
    if len(found) <= limit:
        return Page(found, None)
    shown = found[limit - 1]
    return Page(found[:limit], MAPPINGS_ORDER.build_position(resource or "", shown.used_at, shown.id))


async def get_own_mapping(db: Database, user: Principal | None, mapping_id: int) -> RememberedMapping:
    """Return a mapping that the user may change; None is a local user, who may change all.

    Raises:
        Forbidden: Another user shares it.
        UnknownEntity: It does not exist, or belongs to another user.
    """
    found = await db.read(_fetch_mappings, "mapping/get", {"id": mapping_id})
    if found and (user is None or user.may_see(found[0].owner_id)):
        return found[0]
    if found and found[0].shared:
        raise Forbidden("Only the owner of a mapping and admins can change it")
    raise UnknownEntity(f'Unknown mapping "{mapping_id}"')


async def share_mapping(db: Database, user: Principal | None, mapping_id: int, *, shared: bool) -> RememberedMapping:
    """Share a mapping with all users who may import into its resource, or stop sharing it."""
    found = await get_own_mapping(db, user, mapping_id)
    await db.run(_execute, "mapping/share", {"id": mapping_id, "shared": shared})
    return replace(found, shared=shared)


async def forget_mapping(db: Database, user: Principal | None, mapping_id: int) -> None:
    await get_own_mapping(db, user, mapping_id)
    await db.run(_execute, "mapping/forget", {"id": mapping_id})


async def _fetch_mappings(conn: Connection, query: str, params: Mapping[str, object]) -> list[RememberedMapping]:
    return await fetch_records(conn, RememberedMapping, sql(query), params)


async def _fetch_truth(conn: Connection, query: str) -> bool:
    row = await (await conn.execute(sql(query))).fetchone()
    return row is not None and bool(row[0])


async def _execute(conn: Connection, query: str, params: Mapping[str, object]) -> None:
    await conn.execute(sql(query), params)
