"""A job as its lists need it."""

from dataclasses import dataclass
from uuid import UUID

from tidemill.domain.columns import Columns, columns_of
from tidemill.domain.errors import UnknownJob
from tidemill.domain.search import named
from tidemill.store.database import Connection, one_statement
from tidemill.store.json import decode_input
from tidemill.store.lists.fetch import rows


@dataclass(frozen=True, slots=True)
class Grid:
    """How far a job reaches, what its items may be, and the columns that are shown of them."""

    id: UUID
    owner_id: int
    kind: str
    sparse: bool
    purged: bool
    total: int
    columns: Columns


@one_statement
async def find_grid(conn: Connection, job: UUID | str, owner_id: int | None = None) -> Grid:
    """By id or key. Somebody else's job is as unknown as one that never was."""
    found = await rows(conn, "job/grid", named(job))
    if not found or owner_id not in (None, found[0]["owner_id"]):
        raise UnknownJob(f"there is no job {job}")
    row = found[0]
    first_input = row.pop("first_input")
    names = row.pop("result_columns")
    return Grid(**row, columns=columns_of(names, None if first_input is None else decode_input(first_input)))
