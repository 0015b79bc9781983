"""Stores the limits of users, and reads how much of them is used."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from psycopg.types.json import Jsonb

from tidemill.core.errors import UnknownJob
from tidemill.core.principal import Role
from tidemill.core.quotas import Quota, QuotaUse, resolve_quota
from tidemill.store.database import Connection
from tidemill.store.statements import fetch_records, sql


async def read_quota(conn: Connection, owner_id: int, defaults: Quota) -> Quota:
    """Return the limits of a user; the defaults if the user does not exist."""
    cursor = await conn.execute(sql("quota/limits"), {"owner_id": owner_id})
    row = await cursor.fetchone()
    return defaults if row is None else resolve_quota(defaults, Role(row[0]), row[1])


async def read_quota_of_job(conn: Connection, job_id: UUID, defaults: Quota) -> tuple[int, Quota]:
    """Return the owner of a job and the owner's limits; raise UnknownJob if the job does not exist."""
    cursor = await conn.execute(sql("quota/limits_of_job"), {"job_id": job_id})
    row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f'Unknown job "{job_id}"')
    return row[0], resolve_quota(defaults, Role(row[1]), row[2])


async def read_quota_use(conn: Connection, owner_id: int) -> QuotaUse:
    (use,) = await fetch_records(conn, QuotaUse, sql("quota/use"), {"owner_id": owner_id, "job_id": None})
    return use


async def count_open_rows(conn: Connection, owner_id: int) -> int:
    cursor = await conn.execute(sql("quota/open_rows"), {"owner_id": owner_id})
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def count_stored_bytes(conn: Connection, owner_id: int, without_file: str = "") -> int:
    """Return the bytes of a user's stored files, without one of them."""
    cursor = await conn.execute(sql("quota/stored_bytes"), {"owner_id": owner_id, "file_id": without_file})
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def check_requeue_quota(conn: Connection, user_id: int, defaults: Quota) -> None:
    """Raise QuotaExceeded if the rows that this transaction requeued exceed the limits of the user.

    The lock serializes it with the submissions of the user.
    """
    quota = await read_quota(conn, user_id, defaults)
    if not quota.is_unlimited:
        await conn.execute(sql("quota/lock"), {"owner_id": user_id})
        quota.check_requeued(await read_quota_use(conn, user_id))


async def set_quota(conn: Connection, user_id: int, limits: Mapping[str, int | None], removed: Sequence[str]) -> None:
    """Set limits of a user, None for no limit; the defaults apply again to those in ``removed``."""
    await conn.execute(sql("quota/set"), {"id": user_id, "limits": Jsonb(dict(limits)), "removed": list(removed)})


async def record_stored_file_size(conn: Connection, file_id: str, job_id: UUID, size: int) -> None:
    """Record the size of a file that a job stores. It counts towards the quota of the owner."""
    await conn.execute(sql("file/add_stored"), {"file_id": file_id, "job_id": job_id, "bytes": size})
