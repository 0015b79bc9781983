"""The tables that the demo imports into."""

from importlib import resources

from tidemill.store.database import Database


async def create_demo_tables(db: Database) -> None:
    """Those of demo/schema.sql, unless they are there."""
    async with db.transaction() as conn:
        await conn.execute((resources.files("tidemill.demo") / "schema.sql").read_bytes(), prepare=False)
