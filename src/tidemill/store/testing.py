"""What only tests do."""

from collections.abc import Sequence

from tidemill.store.database import Connection
from tidemill.store.statements import sql


async def make_due(conn: Connection, kinds: Sequence[str] | None = None) -> int:
    """Let every batch, of these kinds or of any, that is to be tried again be due now; how many there are."""
    cursor = await conn.execute(sql("testing/make_due"), {"kinds": None if kinds is None else list(kinds)})
    return cursor.rowcount
