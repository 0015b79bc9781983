"""Long-running commands: a worker, the HTTP API, or both."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from tidemill.accounts import use_cases as accounts
from tidemill.app.bootstrap import load_mill
from tidemill.app.processes import (
    open_kickoff_worker,
    open_kickoff_worker_with_own_database,
    open_migrated_database,
    run_worker,
)
from tidemill.app.worker import make_worker
from tidemill.config import Settings, load_settings
from tidemill.telemetry.logs import configure_event_logging
from tidemill.terminal.command_host import BUILTIN_MILL_REFERENCE, MILL_DEFAULT_HELP, resolve_mill
from tidemill.terminal.console import error_console

commands = typer.Typer()
DEMO_MILL_REFERENCE = "tidemill.cli.demo:mill"
STOP_HINT = "Press Ctrl-C to stop"
MillArgument = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        callback=resolve_mill,
        show_default=MILL_DEFAULT_HELP,
        help="MODULE:NAME of the mill, such as app:mill for `mill = Mill()` in app.py",
    ),
]
WorkerProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--processes", "-p", min=1, max=256, help="Number of child processes; default: TIDEMILL_WORKER_POOL_SIZE"
    ),
]
HttpHostOption = Annotated[str | None, typer.Option(help="Address to listen on; default: TIDEMILL_HTTP_HOST")]
HttpPortOption = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port to listen on; default: TIDEMILL_HTTP_PORT; 0 selects a free port"),
]


@commands.command()
def worker(app: MillArgument = BUILTIN_MILL_REFERENCE, processes: WorkerProcessesOption = None) -> None:
    """Run a worker for the handlers of a mill and for built-in kinds, until Ctrl-C or SIGTERM."""
    mill = load_mill(app)

    async def run() -> None:
        configure_event_logging(mill.settings.log_level)
        await run_worker(mill, app, processes, _install_stop_signals())

    asyncio.run(run())


@commands.command("serve")
def serve_command(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            callback=resolve_mill,
            show_default=MILL_DEFAULT_HELP,
            help="MODULE:NAME of a mill, so that requests can process its jobs on demand, in time slices",
        ),
    ] = None,
    host: HttpHostOption = None,
    port: HttpPortOption = None,
) -> None:
    """Run the HTTP API and the web UI, without a worker, until Ctrl-C or SIGTERM."""
    from tidemill.cli import http_server  # noqa: PLC0415  importing FastAPI doubles the start time of a command

    mill = None if app is None else load_mill(app)
    settings = _override_listen_address(load_settings() if mill is None else mill.settings, host, port)
    listening = http_server.open_listen_socket(settings)

    async def run() -> None:
        configure_event_logging(settings.log_level)
        stop = _install_stop_signals()
        async with AsyncExitStack() as stack:
            pool = None
            if mill is not None and app is not None:
                pool = await stack.enter_async_context(open_kickoff_worker_with_own_database(settings, mill, app))
            await stack.enter_async_context(http_server.run_http_service(settings, listening, pool, mill))
            address = http_server.format_browser_url(listening)
            error_console.print(f"Listening at [bold]{address}[/]", highlight=False)
            _print_lines(f"To sign in, create a link: tidemill users link --address {address}", STOP_HINT)
            await stop.wait()

    http_server.run_with_uvloop(run())


@commands.command()
def up(
    app: MillArgument = DEMO_MILL_REFERENCE,
    processes: WorkerProcessesOption = None,
    host: HttpHostOption = None,
    port: HttpPortOption = None,
) -> None:
    """Run the database, the HTTP API, the web UI and a worker on this machine, until Ctrl-C."""
    from tidemill.cli import http_server  # noqa: PLC0415  as above

    if error_console.is_terminal:  # events would hide the addresses; a service manager or a pipe gets all of them
        os.environ.setdefault("TIDEMILL_LOG_LEVEL", "warning")
    mill = load_mill(app)
    settings = _override_listen_address(mill.settings, host, port)
    listening = http_server.open_listen_socket(settings)

    async def run() -> None:
        configure_event_logging(settings.log_level)
        stop = _install_stop_signals()
        async with (
            open_migrated_database(settings) as db,
            open_kickoff_worker(db, mill, app, 1) as pool,
            http_server.run_http_service(settings, listening, pool, mill),
        ):
            address = http_server.format_browser_url(listening)
            link = address + await accounts.create_sign_in_link(db, "local")
            _print_startup_details(db.display_url, address, link)
            await make_worker(db, mill, app, processes or settings.worker_pool_size).run(stop)

    http_server.run_with_uvloop(run())


def _print_startup_details(database: str, address: str, link: str) -> None:
    """Print where the service runs, how to sign in, what to do next and how to stop."""
    lines = {
        "database": database,
        "address": address,
        "sign in": f"{link}  (valid once, for 15 minutes)",
    }
    for name, value in lines.items():
        error_console.print(f"{name:>8}  [bold]{value}[/]", highlight=False, soft_wrap=True)
    _print_lines(
        f"Open the sign-in link in a browser. For another link, run: tidemill users link --address {address}",
        "To import a file, run in another terminal: tidemill import FILE --into TABLE",
        STOP_HINT,
    )


def _print_lines(*lines: str) -> None:
    for line in lines:
        error_console.print(line, highlight=False, soft_wrap=True)


def _override_listen_address(settings: Settings, host: str | None, port: int | None) -> Settings:
    options = {"http_host": host, "http_port": port}
    return settings.model_copy(update={name: value for name, value in options.items() if value is not None})


def _install_stop_signals() -> asyncio.Event:
    """Return an event that SIGINT, SIGTERM and the end of the terminal set."""
    stop = asyncio.Event()
    stopping = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # with nohup, the process outlives its terminal
        stopping.append(signal.SIGHUP)
    for number in stopping:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
