"""Finds resources by name: declared resources and, for administrators, any table."""

import time
from collections.abc import Mapping
from functools import partial

from tidemill.core.errors import Forbidden, InvalidInput, InvalidSettings, UnknownResource
from tidemill.core.principal import Role
from tidemill.runtime import Runtime
from tidemill.store.database import Connection, Database
from tidemill.tables.introspection.table_introspection import find_table, introspect_table
from tidemill.tables.merge_declaration import merge_declaration
from tidemill.tables.resource import BUILTIN_NORMALIZERS, Resource, ResourceDeclaration, is_granted

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
        if seen is not None and time.monotonic() - seen[0] < CATALOG_CACHE_S and (any_table or name in self._declared):
            return seen[1]
        if name in self._declared:
            resource = await db.read_snapshot(_introspect_declared_table, self._declared[name], for_reading)
        elif any_table:
            resource = await db.read_snapshot(_introspect_table_by_name, name, for_reading)
        else:
            raise UnknownResource(f'Unknown resource "{name}"')
        self._cache[name, for_reading] = (time.monotonic(), resource)
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
