"""The command `tidemill torture`: faults against real processes, from one seed."""

import asyncio
import secrets
import signal
from typing import Annotated

import typer

from tidemill.terminal.command_host import silence_logs_unless_configured
from tidemill.terminal.console import JsonOption, console, error_console, format_json
from tidemill.torture.faults import FAULTS
from tidemill.torture.run import Torture, TortureOptions

commands = typer.Typer()
SEED_MAX = 2**31


@commands.command()
def torture(
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all random choices; default: a random seed")] = None,
    minutes: Annotated[float, typer.Option(min=0.1, max=24 * 60, help="Duration of the run")] = 5.0,
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="PostgreSQL database of an installation; default: a temporary server"),
    ] = None,
    allow_existing: Annotated[
        bool, typer.Option("--allow-existing", help="Also use a database that already has jobs")
    ] = False,
    round_seconds: Annotated[
        float, typer.Option(min=5, max=3_600, help="Seconds of faults before each comparison of the ledgers")
    ] = 45.0,
    faults: Annotated[
        str, typer.Option(metavar="NAMES", help=f"Comma-separated faults; default: all. Faults: {', '.join(FAULTS)}")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Inject random faults into real processes, and prove that no row is lost, doubled or stuck.

    The exit code is 0 only if every row is accounted for. With --database, the faults affect only the command's own
    processes and connections, and the command deletes its jobs and tables at the end.
    """
    silence_logs_unless_configured()
    chosen = tuple(name.strip() for name in faults.split(",") if name.strip()) or FAULTS
    options = TortureOptions(
        seed=secrets.randbelow(SEED_MAX) if seed is None else seed,
        seconds=minutes * 60,
        round_s=round_seconds,
        database_url=database,
        allow_existing=allow_existing,
        faults=chosen,
        announce=lambda line: error_console.print(line, highlight=False, markup=False, soft_wrap=True),
    )
    run = Torture(options)
    error_console.print(f"seed {options.seed}", highlight=False)
    asyncio.run(_run_until_stopped(run))
    if as_json:
        typer.echo(format_json(run.report.to_dict()))
    else:
        for line in run.report.format_lines():
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not run.report.has_passed:
        raise typer.Exit(1)


async def _run_until_stopped(run: Torture) -> None:
    """Run until the end. SIGINT and SIGTERM end the processes and remove the tables first."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  asyncio.run creates a task
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await run.run()
    except asyncio.CancelledError:
        error_console.print("Interrupted", highlight=False)
