"""Creates the tables of the demo."""

from importlib import resources

from tidemill.store.database import Database


async def create_demo_tables(db: Database) -> None:
    """Create the tables of ``demo/schema.sql`` if they do not exist."""
    async with db.transaction() as conn:
        await conn.execute((resources.files("tidemill.demo") / "schema.sql").read_bytes(), prepare=False)
