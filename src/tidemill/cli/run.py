"""Commands that run until they are stopped: a worker, the HTTP API, or both."""

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from tidemill.accounts import use_cases as accounts
from tidemill.app.bootstrap import load_mill
from tidemill.app.processes import (
    open_migrated_database,
    run_kickoff_worker,
    run_on_demand_worker,
    run_worker,
)
from tidemill.app.worker import make_worker
from tidemill.config import Settings, load_settings
from tidemill.telemetry.logs import configure_event_logging
from tidemill.terminal.command_host import BUILTIN_MILL_REFERENCE
from tidemill.terminal.console import error_console

commands = typer.Typer()
DEMO_MILL_REFERENCE = "tidemill.cli.demo:mill"
MillArgument = Annotated[str, typer.Argument(metavar="APP", help="MODULE:NAME of a mill, as in app:mill")]
WorkerProcessesOption = Annotated[int | None, typer.Option("--processes", "-p", min=1, max=256, help="Child processes")]
HttpHostOption = Annotated[str | None, typer.Option(help="The address to listen on, instead of TIDEMILL_HTTP_HOST")]
HttpPortOption = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Its port, instead of TIDEMILL_HTTP_PORT; 0 for any that is free")
]


@commands.command()
def worker(app: MillArgument = BUILTIN_MILL_REFERENCE, processes: WorkerProcessesOption = None) -> None:
    """Run imports, exports and the handlers of a mill, if one is named, until stopped with Ctrl-C or SIGTERM."""
    mill = load_mill(app)

    async def run() -> None:
        configure_event_logging(mill.settings.log_level)
        await run_worker(mill, app, processes, _install_stop_signals())

    asyncio.run(run())


@commands.command("serve")
def serve_command(
    app: Annotated[str | None, typer.Argument(metavar="APP", help="MODULE:NAME of a mill, for kickoff")] = None,
    host: HttpHostOption = None,
    port: HttpPortOption = None,
) -> None:
    """Run the HTTP API until stopped. With a mill, kickoff runs its handlers for the length of a request."""
    from tidemill.cli import http_server  # noqa: PLC0415  FastAPI is half of the start of a command: others are spared it

    mill = None if app is None else load_mill(app)
    settings = _override_listen_address(load_settings() if mill is None else mill.settings, host, port)
    listening = http_server.open_listen_socket(settings)

    async def run() -> None:
        configure_event_logging(settings.log_level)
        stop = _install_stop_signals()
        async with AsyncExitStack() as stack:
            pool = None
            if mill is not None and app is not None:
                pool = await stack.enter_async_context(run_on_demand_worker(settings, mill, app))
            await stack.enter_async_context(http_server.run_http_service(settings, listening, pool, mill))
            error_console.print(f"listening at [bold]{http_server.format_browser_url(listening)}[/]", highlight=False)
            await stop.wait()

    http_server.run_with_uvloop(run())


@commands.command()
def up(
    app: MillArgument = DEMO_MILL_REFERENCE,
    processes: WorkerProcessesOption = None,
    host: HttpHostOption = None,
    port: HttpPortOption = None,
) -> None:
    """Everything on this machine, until stopped: the database, brought up to date, the HTTP API and a worker."""
    from tidemill.cli import http_server  # noqa: PLC0415  as above

    mill = load_mill(app)
    settings = _override_listen_address(mill.settings, host, port)
    listening = http_server.open_listen_socket(settings)

    async def run() -> None:
        configure_event_logging(settings.log_level)
        stop = _install_stop_signals()
        async with (
            open_migrated_database(settings) as db,
            run_kickoff_worker(db, mill, app, 1) as pool,
            http_server.run_http_service(settings, listening, pool, mill),
        ):
            address = http_server.format_browser_url(listening)
            link = address + await accounts.create_sign_in_link(db, "local")
            _print_sign_in_details(db.display_url, address, link)
            await make_worker(db, mill, app, processes or settings.worker_pool_size).run(stop)

    http_server.run_with_uvloop(run())


def _print_sign_in_details(database: str, address: str, link: str) -> None:
    lines = {
        "database": database,
        "address": address,
        "sign in": f"{link}  (good once, for a quarter of an hour)",
    }
    for name, value in lines.items():
        error_console.print(f"{name:>8}  [bold]{value}[/]", highlight=False, soft_wrap=True)
    error_console.print("Ctrl-C stops everything", highlight=False)


def _override_listen_address(settings: Settings, host: str | None, port: int | None) -> Settings:
    options = {"http_host": host, "http_port": port}
    return settings.model_copy(update={name: value for name, value in options.items() if value is not None})


def _install_stop_signals() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
