"""Commands that run things until they are stopped."""

import asyncio
import signal
from typing import Annotated

import typer

from tidemill.app import Mill, Worker, open_database
from tidemill.cli import child
from tidemill.cli.load import load_mill
from tidemill.cli.views import errors
from tidemill.store.database import Database
from tidemill.store.migrate import migrate
from tidemill.telemetry.logs import log_events

commands = typer.Typer()
AppArgument = Annotated[str, typer.Argument(metavar="APP", help="MODULE:NAME of a mill, as in app:mill")]
Processes = Annotated[int | None, typer.Option("--processes", "-p", min=1, max=256, help="Child processes")]


@commands.command()
def worker(app: AppArgument, processes: Processes = None) -> None:
    """Run the handlers of a mill until stopped with Ctrl-C or SIGTERM."""
    asyncio.run(_run_until_signal(app, processes, and_migrate=False))


@commands.command()
def up(app: AppArgument = "tidemill.cli.demo:mill", processes: Processes = None) -> None:
    """Everything on this machine: the database, brought up to date, and a worker."""
    asyncio.run(_run_until_signal(app, processes, and_migrate=True))


async def _run_until_signal(app: str, processes: int | None, *, and_migrate: bool) -> None:
    mill = load_mill(app)
    settings = mill.settings
    log_events(settings.log_level)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with open_database(settings, size=4, check=not and_migrate) as db:
        if and_migrate:
            await migrate(db)
            errors.print(f"database ready at [bold]{db.url}[/]; Ctrl-C stops everything", highlight=False)
        await make_worker(db, mill, app, processes or settings.worker_pool_size).run(stop)


def make_worker(db: Database, mill: Mill, reference: str, processes: int, *, on_demand: bool = False) -> Worker:
    """A worker for ``mill``, whose children find it again by ``reference``."""
    pages = mill.settings.worker_lanes + 1

    def command(worker_id: str, number: int, control: int, book: int) -> list[str]:
        return child.command(reference, worker_id, pages, int(on_demand), number, control, book)

    return Worker(db, mill, command, processes=processes, on_demand=on_demand)
