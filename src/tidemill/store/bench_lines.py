"""What the benchmark of distributions makes files of: lines of statements of customers, on one day."""

from tidemill.store.database import Database
from tidemill.store.statements import sql

DATASET = "tidemill_bench_statements"
DAY = 20240101
LINES = 100
DECLARED = f"""
[datasets.{DATASET}]
query = \"""
{sql("bench/read_lines").decode()}
\"""
fields = {{ customer = "integer", day = "yyyymmdd" }}
date_field = "day"
"""


async def make_lines(db: Database, customers: int) -> None:
    async with db.transaction(bounded=False) as conn:
        for name in ("create_schema", "create_lines"):
            await conn.execute(sql(f"bench/{name}"))
        await conn.execute(sql("bench/fill_lines"), {"customers": customers, "lines": LINES, "day": DAY})
    async with db.connection() as conn:
        await conn.execute(sql("bench/vacuum_lines"), prepare=False)
