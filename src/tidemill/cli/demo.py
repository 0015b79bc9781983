"""A job from end to end on this machine, to see that everything works."""

import asyncio
import hashlib
import os
import time
from typing import Annotated

import typer
from rich.markup import escape

from tidemill.app import Mill, open_database
from tidemill.cli.jobs import show_progress
from tidemill.cli.run import make_worker
from tidemill.cli.views import console, detail
from tidemill.domain.item import Item
from tidemill.domain.job import Job
from tidemill.domain.outcome import NotFound, Retry
from tidemill.store import jobs
from tidemill.store.migrate import migrate

commands = typer.Typer()
mill = Mill()

NOT_THERE, FLAKY, BROKEN = 9_973, 5_003, 33_331


@mill.handler("demo.price", max_attempts=3, backoff=0.5, max_attempts_not_found=1)
async def price(item: Item) -> dict[str, object]:
    """Look up a price; some things are not there, some work at the second attempt, some never."""
    number = int(item.input["sku"])
    if number % NOT_THERE == 1:
        raise NotFound(f"no such product: {number}")
    if number % BROKEN == 1 or (number % FLAKY == 1 and item.attempt == 1):
        raise Retry("the shop did not answer")
    digest = hashlib.blake2b(str(number).encode(), digest_size=4).digest()
    return {"sku": number, "price": int.from_bytes(digest) % 10_000 / 100}


@commands.command("demo")
def demo(
    items: Annotated[int, typer.Option(min=1, help="How many")] = 100_000,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=64)] = 2,
) -> None:
    """Run a job through the engine on the embedded PostgreSQL, and say what happened."""
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
    asyncio.run(_demo(items, processes))


async def _demo(n: int, processes: int) -> None:
    async with open_database(mill.settings, check=False) as db:
        await migrate(db)
        console.print(f"PostgreSQL runs, the schema is up to date. Submitting {n:,} items …", highlight=False)
        stop = asyncio.Event()
        worker = asyncio.create_task(make_worker(db, mill, "tidemill.cli.demo:mill", processes).run(stop))
        started = time.monotonic()
        job_id = await mill.submit_async("demo.price", ({"sku": i} for i in range(n)))
        stored = time.monotonic()
        job = await show_progress(db, await db.run(jobs.get, job_id))
        finished = time.monotonic()
        stop.set()
        await worker
    _report(job, stored - started, finished - stored)


def _report(job: Job, storing: float, processing: float) -> None:
    counts = job.counts
    console.print(f"\n[bold]{job.key}[/] is [bold]{job.status}[/]: {detail(counts)}", highlight=False)
    console.print(f"  {counts.total:,} items were stored in {storing:.1f} s ({counts.total / storing:,.0f}/s)")
    console.print(f"  and processed in {processing:.1f} s ({counts.total / processing:,.0f}/s).")
    console.print(f"  The sum holds: {counts.total:,} = {counts.settled:,} settled + {counts.open:,} open.")
    for code, number in job.codes.items():
        hint = f"see them with `tidemill items {job.key} --status failed`"
        console.print(f"  {number:,} failed with {escape(code)}: {hint}.", soft_wrap=True)
