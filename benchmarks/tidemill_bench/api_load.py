"""The requests of the API benchmark: pages of items, concurrent clients, and uploads of a large file.

Pages are requested with each filter at the beginning, in the middle and at the end of a job.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidemill.core.errors import TidemillError
from tidemill.store.jsonb import encode_json
from tidemill_bench.http_client import RawHttpClient, TimedResponse
from tidemill_bench.mill import NOOP_KIND
from tidemill_bench.sample_rows import make_base_inputs, repeat_inputs

PAGE_SIZE = 100
WALK_PAGE_SIZE = 500  # items per page while the cursors are collected
STATUS_FILTERS: tuple[tuple[str, ...], ...] = (
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
SEQ_ORDERED_FILTERS = ((), ("done",))  # listed in order of seq; pages in the middle are reached with `seq` only


@dataclass(frozen=True, slots=True)
class PageProbe:
    """The request path of a page, with its filter and its depth in the list."""

    filter: str
    depth: str
    path: str


async def find_page_probes(client: RawHttpClient, job_id: UUID) -> list[PageProbe]:
    """Return the first, middle and last page of every filter, reached by cursor and by `seq`."""
    counts = (await client.get(f"/v1/jobs/{job_id}")).checked_json["counts"]
    total, probes = counts["total"], []
    for statuses in STATUS_FILTERS:
        name = "+".join(statuses) or "all"
        base = f"/v1/jobs/{job_id}/items?statuses={','.join(statuses)}&page_size="
        page = f"{base}{PAGE_SIZE}"
        probes.append(PageProbe(name, "first", page))
        probes.append(PageProbe(name, "seek_middle", f"{page}&seq={total // 2}"))
        probes.append(PageProbe(name, "seek_last", f"{page}&seq={max(0, total - total // 40)}"))
        if statuses not in SEQ_ORDERED_FILTERS:
            cursors = await _collect_cursors(
                client, f"{base}{WALK_PAGE_SIZE}", sum(counts[status] for status in statuses)
            )
            if cursors:
                probes.append(PageProbe(name, "middle", f"{page}&after={cursors[len(cursors) // 2]}"))
                probes.append(PageProbe(name, "last", f"{page}&after={cursors[-2:][0]}"))
    return probes


async def _collect_cursors(client: RawHttpClient, path: str, expected: int) -> Sequence[str]:
    """Return the cursors of all later pages; raise TidemillError unless the pages have every item."""
    cursors: list[str] = []
    page = (await client.get(path)).checked_json
    seen = len(page["items"])
    while "next_page" in page:
        cursors.append(page["next_page"])
        page = (await client.get(f"{path}&after={cursors[-1]}")).checked_json
        seen += len(page["items"])
    if seen != expected:
        raise TidemillError(f"Invalid measurement: {path} listed {seen} items instead of {expected}")
    return cursors


CLIENT_REQUEST_INTERVAL_S = 1.0
SUBMITTED_JOB_ROWS = 10
RequestFunction = Callable[[RawHttpClient], Coroutine[Any, Any, TimedResponse]]


class LoadGenerator:
    """Concurrent clients. ``answers``: durations of successful requests in milliseconds; ``errors``: the other ones."""

    def __init__(self, job_id: UUID, seconds: float) -> None:
        self.answers: list[float] = []
        self.errors: list[str] = []
        here = f"/v1/jobs/{job_id}"
        self._poll_paths = (here, f"{here}/items?page_size=100", here, "/v1/jobs?page_size=20")
        self._seconds = seconds

    async def run(self, pollers: Sequence[RawHttpClient], submitters: Sequence[RawHttpClient]) -> None:
        clients = [(client, self._poll_requests(n)) for n, client in enumerate(pollers)]
        clients += [(client, _submit_requests()) for client in submitters]
        async with asyncio.TaskGroup() as group:
            for n, (client, requests) in enumerate(clients):
                group.create_task(self._send_requests(client, requests, CLIENT_REQUEST_INTERVAL_S * n / len(clients)))

    def _poll_requests(self, number: int) -> Iterator[RequestFunction]:
        """Yield the requests of a browser with an open job, starting at a different one for each client."""
        for path in itertools.islice(itertools.cycle(self._poll_paths), number, None):
            yield lambda client, path=path: client.get(path)  # type: ignore[misc]

    async def _send_requests(self, client: RawHttpClient, requests: Iterator[RequestFunction], delay: float) -> None:
        started = time.monotonic()
        await asyncio.sleep(delay)
        while time.monotonic() - started < self._seconds:
            sent_at = time.monotonic()
            try:
                answer = await next(requests)(client)
                answer.checked_json  # noqa: B018  raises if the request failed
            except (TidemillError, OSError, EOFError, TimeoutError) as error:
                self.errors.append(repr(error))
                return
            self.answers.append(answer.ms)
            await asyncio.sleep(max(0.0, sent_at + CLIENT_REQUEST_INTERVAL_S - time.monotonic()))


def _submit_requests() -> Iterator[RequestFunction]:
    job = {"kind": NOOP_KIND, "inputs": list(repeat_inputs(SUBMITTED_JOB_ROWS))}
    while True:
        yield lambda client: client.post("/v1/jobs", job)


BYTES_PER_MIB = 1 << 20
MULTIPART_BOUNDARY = "tidemill-bench"


async def as_body(client: RawHttpClient, megabytes: int) -> TimedResponse:
    return await client.send(
        f"/v1/jobs?kind={NOOP_KIND}", "application/x-ndjson", megabytes * BYTES_PER_MIB, _repeat_ndjson_chunk(megabytes)
    )


async def as_form(client: RawHttpClient, megabytes: int) -> TimedResponse:
    head = (
        f'--{MULTIPART_BOUNDARY}\r\nContent-Disposition: form-data; name="kind"\r\n\r\n{NOOP_KIND}\r\n'
        f'--{MULTIPART_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="rows.ndjson"\r\n\r\n'
    ).encode()
    tail = f"\r\n--{MULTIPART_BOUNDARY}--\r\n".encode()
    length = len(head) + megabytes * BYTES_PER_MIB + len(tail)
    pieces = itertools.chain([head], _repeat_ndjson_chunk(megabytes), [tail])
    return await client.send("/v1/jobs", f"multipart/form-data; boundary={MULTIPART_BOUNDARY}", length, pieces)


def _repeat_ndjson_chunk(megabytes: int) -> Iterator[bytes]:
    """Yield NDJSON rows, the same megabyte each time."""
    rows = b"".join(encode_json(row) + b"\n" for row in make_base_inputs())
    piece = (rows * (BYTES_PER_MIB // len(rows) + 1))[:BYTES_PER_MIB]
    return itertools.repeat(piece, megabytes)
