"""What only tests do."""

from tidemill.store.database import Connection
from tidemill.store.statements import sql


async def make_due(conn: Connection) -> int:
    """Let every waiting batch be due now; how many were waiting."""
    cursor = await conn.execute(sql("testing/make_due"))
    return cursor.rowcount
