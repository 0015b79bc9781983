"""Lists, changes and unblocks limiters."""

from typing import Any

from tidemill.core.errors import Conflict, InvalidInput, UnknownEntity
from tidemill.core.list_pages import check_storable_text
from tidemill.limits import limiter
from tidemill.limits import limiter_records as store
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

LimiterRow = dict[str, Any]


async def list_limiters(db: Database) -> list[LimiterRow]:
    return await db.read(store.list_limiters)


async def get_limiter(db: Database, name: str) -> LimiterRow:
    check_storable_text("The name of a limiter", name)
    rows = await db.read(store.list_limiters, name)
    if not rows:
        raise UnknownEntity(f'Unknown limiter "{name}"')
    return rows[0]


async def change_limiter(
    db: Database,
    name: str,
    *,
    rate: str | float | None = None,
    burst: int | None = None,
    concurrency: int | None = None,
    by: str | None = None,
) -> LimiterRow:
    """Change a limiter for all workers, until it is declared again."""
    before = await get_limiter(db, name)
    given = {"rate": rate, "burst": burst, "concurrency": concurrency}
    changes = {field: _parse_limit(field, value) for field, value in given.items() if value is not None}
    if not changes:
        raise InvalidInput("Nothing to change. Set rate, burst or concurrency.")
    for field in changes:
        if before["rate" if field == "burst" else field] is None:
            raise Conflict(f'Limiter "{name}" has no {field}. Add {field} to its declaration first.')
    await db.run(store.update_limiter, name, changes)
    rate, burst, concurrency = (changes.get(field) for field in given)
    emit("limiter.changed", limiter=name, by=by, rate=rate, burst=burst, concurrency=concurrency)
    return await get_limiter(db, name)


async def unblock_limiter(db: Database, name: str, key: str | None = None, *, by: str | None = None) -> LimiterRow:
    """Remove the block of a limiter and all its members, or of one member."""
    check_storable_text("The key of a member", key)
    await get_limiter(db, name)
    lifted = await db.run(store.unblock_limiter, name, key)
    if lifted:
        emit("limiter.unblocked", limiter=name, key=key, by=by)
    return await get_limiter(db, name)


def _parse_limit(field: str, value: Any) -> Any:
    try:
        return {"rate": limiter.parse_rate, "burst": limiter.parse_burst, "concurrency": limiter.parse_concurrency}[
            field
        ](value)
    except ValueError as error:
        raise InvalidInput(f"{field}: {error}") from None
