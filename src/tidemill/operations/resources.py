"""Resources by name: declared ones, and any table for those who may."""

import time
from collections.abc import Mapping

from tidemill.domain.declaration import Declaration, merge
from tidemill.domain.errors import InvalidInput, InvalidSettings, UnknownResource
from tidemill.domain.identity import Role
from tidemill.domain.resource import Resource, may
from tidemill.store.catalog import find_table, introspect
from tidemill.store.database import Connection, Database, one_snapshot

FRESH_S = 5.0  # how long a look at the catalog is good for: workers ask for every batch


class Resources:
    """Knows what is declared, and remembers for a moment what the catalog said."""

    def __init__(self, declared: Mapping[str, Declaration]) -> None:
        self._declared = dict(declared)
        self._seen: dict[tuple[str, bool], tuple[float, Resource]] = {}

    async def find(self, db: Database, name: str, *, any_table: bool = False, reads: bool = False) -> Resource:
        """A declared resource; with ``any_table``, also what a table of that name is by itself.

        Who only ``reads`` sees columns that cannot be written, and views, too.
        """
        seen = self._seen.get((name, reads))
        if seen is not None and time.monotonic() - seen[0] < FRESH_S and (any_table or name in self._declared):
            return seen[1]
        if name in self._declared:
            resource = await db.run(_declared, self._declared[name], reads)
        elif any_table:
            resource = await db.run(_of_table, name, reads)
        else:
            raise UnknownResource(f"there is no resource {name!r}")
        self._seen[name, reads] = (time.monotonic(), resource)
        return resource

    def forget(self, name: str) -> None:
        """Look again next time: something did not fit what the catalog had said."""
        for reads in (False, True):
            self._seen.pop((name, reads), None)

    async def problems(self, db: Database) -> list[str]:
        """Every way in which what is declared does not fit the database."""
        found = []
        for name, declared in self._declared.items():
            try:
                await self.find(db, name, reads=not declared.write)
            except InvalidSettings as error:
                found.append(str(error))
        return found

    def list(self, role: Role) -> list[Declaration]:
        """What is declared and this role may read or write."""
        return [one for one in self._declared.values() if may(role, one, "read") or may(role, one, "write")]


@one_snapshot
async def _declared(conn: Connection, declared: Declaration, reads: bool) -> Resource:
    try:
        table = await find_table(conn, declared.table, reads=reads)
    except InvalidInput as error:
        raise InvalidSettings(f"{declared.path}.table: {error}") from None
    return merge(declared, await introspect(conn, table, reads=reads))


@one_snapshot
async def _of_table(conn: Connection, name: str, reads: bool) -> Resource:
    return await introspect(conn, await find_table(conn, name, reads=reads), reads=reads)
