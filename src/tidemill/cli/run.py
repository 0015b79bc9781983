"""Commands that run things until they are stopped."""

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from tidemill.app import Mill, Worker, open_database
from tidemill.cli import child
from tidemill.cli.identity import sign_in_link
from tidemill.cli.load import PLAIN, load_mill
from tidemill.cli.views import errors
from tidemill.config import Settings, load_settings
from tidemill.store.database import Database
from tidemill.store.migrate import migrate
from tidemill.telemetry.logs import log_events

commands = typer.Typer()
DEMO = "tidemill.cli.demo:mill"
AppArgument = Annotated[str, typer.Argument(metavar="APP", help="MODULE:NAME of a mill, as in app:mill")]
Processes = Annotated[int | None, typer.Option("--processes", "-p", min=1, max=256, help="Child processes")]
Host = Annotated[str | None, typer.Option(help="The address to listen on, instead of TIDEMILL_HTTP_HOST")]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Its port, instead of TIDEMILL_HTTP_PORT; 0 for any that is free")
]


@commands.command()
def worker(app: AppArgument = PLAIN, processes: Processes = None) -> None:
    """Run imports, exports and the handlers of a mill, if one is named, until stopped with Ctrl-C or SIGTERM."""
    mill = load_mill(app)

    async def run() -> None:
        stop = _until_signal(mill.settings)
        async with open_database(mill.settings, size=4) as db:
            await make_worker(db, mill, app, processes or mill.settings.worker_pool_size).run(stop)

    asyncio.run(run())


@commands.command("serve")
def serve_command(
    app: Annotated[str | None, typer.Argument(metavar="APP", help="MODULE:NAME of a mill, for kickoff")] = None,
    host: Host = None,
    port: Port = None,
) -> None:
    """Run the HTTP API until stopped. With a mill, kickoff runs its handlers for the length of a request."""
    from tidemill.cli import serve  # noqa: PLC0415  FastAPI is half of the start of a command: others are spared it

    mill = None if app is None else load_mill(app)
    settings = _at(load_settings() if mill is None else mill.settings, host, port)
    listening = serve.listen(settings)

    async def run() -> None:
        stop = _until_signal(settings)
        async with AsyncExitStack() as stack:
            pool = None
            if mill is not None and app is not None:
                db = await stack.enter_async_context(open_database(settings, size=4))
                pool = make_worker(db, mill, app, settings.worker_pool_size, on_demand=True)
                await pool.start()
                stack.push_async_callback(pool.stop)
            await stack.enter_async_context(serve.service(settings, listening, pool, mill))
            errors.print(f"listening at [bold]{serve.address(listening)}[/]", highlight=False)
            await stop.wait()

    serve.run(run())


@commands.command()
def up(app: AppArgument = DEMO, processes: Processes = None, host: Host = None, port: Port = None) -> None:
    """Everything on this machine, until stopped: the database, brought up to date, the HTTP API and a worker."""
    from tidemill.cli import serve  # noqa: PLC0415  as above

    mill = load_mill(app)
    settings = _at(mill.settings, host, port)
    listening = serve.listen(settings)

    async def run() -> None:
        stop = _until_signal(settings)
        async with open_database(settings, size=8, check=False) as db, AsyncExitStack() as stack:
            await migrate(db)
            pool = make_worker(db, mill, app, 1, on_demand=True)
            await pool.start()
            stack.push_async_callback(pool.stop)
            await stack.enter_async_context(serve.service(settings, listening, pool, mill))
            await _welcome(db, serve.address(listening))
            await make_worker(db, mill, app, processes or settings.worker_pool_size).run(stop)

    serve.run(run())


async def _welcome(db: Database, address: str) -> None:
    link = await sign_in_link(db, "local", address)
    lines = {"database": db.shown, "address": address, "sign in": f"{link}  (good once, for a quarter of an hour)"}
    for name, value in lines.items():
        errors.print(f"{name:>8}  [bold]{value}[/]", highlight=False, soft_wrap=True)
    errors.print("Ctrl-C stops everything", highlight=False)


def make_worker(db: Database, mill: Mill, reference: str, processes: int, *, on_demand: bool = False) -> Worker:
    """A worker for ``mill``, whose children find it again by ``reference``."""
    pages = mill.settings.worker_lanes + 1

    def command(worker_id: str, number: int, control: int, book: int) -> list[str]:
        return child.command(reference, worker_id, pages, int(on_demand), number, control, book)

    return Worker(db, mill, command, processes=processes, on_demand=on_demand)


def _at(settings: Settings, host: str | None, port: int | None) -> Settings:
    said = {"http_host": host, "http_port": port}
    return settings.model_copy(update={name: value for name, value in said.items() if value is not None})


def _until_signal(settings: Settings) -> asyncio.Event:
    """Set when somebody wants us to stop."""
    log_events(settings.log_level)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
