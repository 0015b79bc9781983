"""Every kind of page of a job's items: each filter, at its beginning, in its midst and at its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from tidemill.cli.bench.service.http import Client
from tidemill.domain.errors import TidemillError

PAGE = 100
STRIDE = 500  # items per page on the way to the end
FILTERS: tuple[tuple[str, ...], ...] = (
    (),
    ("pending",),
    ("processing",),
    ("retry_wait",),
    ("done",),
    ("failed",),
    ("not_found",),
    ("skipped",),
    ("cancelled",),
    ("pending", "processing"),
    ("failed", "not_found"),
)
BY_SEQ = ((), ("done",))  # listed in order of seq: what is in their midst is reached with `seq` alone


@dataclass(frozen=True, slots=True)
class Place:
    """A page: of which items, how deep, and the path that asks for it."""

    filter: str
    depth: str
    path: str


async def find_places(client: Client, job_id: UUID) -> list[Place]:
    """Of every filter the first page; then the middle and the last one, by walking there and by `seq`."""
    counts = (await client.get(f"/v1/jobs/{job_id}")).value["counts"]
    total, found = counts["total"], []
    for statuses in FILTERS:
        name = "+".join(statuses) or "all"
        base = f"/v1/jobs/{job_id}/items?statuses={','.join(statuses)}&page_size="
        page = f"{base}{PAGE}"
        found.append(Place(name, "first", page))
        found.append(Place(name, "seek_middle", f"{page}&seq={total // 2}"))
        found.append(Place(name, "seek_last", f"{page}&seq={max(0, total - total // 40)}"))
        if statuses not in BY_SEQ:
            cursors = await _walk(client, f"{base}{STRIDE}", sum(counts[status] for status in statuses))
            if cursors:
                found.append(Place(name, "middle", f"{page}&after={cursors[len(cursors) // 2]}"))
                found.append(Place(name, "last", f"{page}&after={cursors[-2:][0]}"))
    return found


async def _walk(client: Client, path: str, expected: int) -> Sequence[str]:
    """The cursors of all further pages; TidemillError unless every item was on one of them."""
    cursors: list[str] = []
    page = (await client.get(path)).value
    seen = len(page["items"])
    while "next_page" in page:
        cursors.append(page["next_page"])
        page = (await client.get(f"{path}&after={cursors[-1]}")).value
        seen += len(page["items"])
    if seen != expected:
        raise TidemillError(f"{path} lists {seen} items where {expected} are counted: what is measured is wrong")
    return cursors
