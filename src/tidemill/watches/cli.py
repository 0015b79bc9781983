"""Watches from a terminal: what they are, and scanning them now."""

import os
import socket
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.core.errors import Busy, InvalidInput
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import BUILTIN_MILL_REFERENCE, run_command
from tidemill.terminal.console import console
from tidemill.watches import watch_leases
from tidemill.watches.file_state import FileState, WatchFile
from tidemill.watches.scanner import WatchScanner, WatchScanReport, load_watches, make_watch_scanner
from tidemill.watches.watch import Watch

commands = typer.Typer()
WatchMillOption = Annotated[str, typer.Option(help="MODULE:NAME of a mill that declares resources")]
_FILE_STATE_COLOURS = {
    FileState.PROCESSED: "green",
    FileState.FAILED: "red",
    FileState.REJECTED: "red",
    FileState.REFUSED: "red",
}


@commands.command("sources")
def sources_command(app: WatchMillOption = BUILTIN_MILL_REFERENCE) -> None:
    """The watches that are declared: what they watch, their last scans, their files, and what is wrong."""

    async def action(runtime: Runtime) -> tuple[list[Watch], dict[str, dict[str, Any]]]:
        own = list(runtime.get(load_watches).values())
        return own, await runtime.db.read(watch_leases.read_watch_states, [one.name for one in own])

    own, known = run_command(action, app=app)
    if not own:
        console.print("no watches are declared: see [watches.NAME] in tidemill.toml", markup=False)
    for one in own:
        _print_watch_status(one, known.get(one.name, {}))


@commands.command("scan")
def scan_command(
    name: Annotated[str | None, typer.Argument(help="A watch; without a name, all of them")] = None,
    again: Annotated[bool, typer.Option("--again", help="Try files once more that failed and are there")] = False,
    app: WatchMillOption = BUILTIN_MILL_REFERENCE,
) -> None:
    """Look now at what a watch watches, whatever its schedule; exit code 1 if something is wrong with it."""

    async def action(runtime: Runtime) -> list[str]:
        scanner = make_watch_scanner(runtime, f"{socket.gethostname()}-{os.getpid()}-scan")
        if name is not None and name not in scanner.watches:
            raise InvalidInput(f"there is no watch {name!r}; declared are: {', '.join(scanner.watches) or 'none'}")
        return [await _scan_watch(scanner, one, again=again) for one in ([name] if name else scanner.watches)]

    if any(run_command(action, app=app)):
        raise typer.Exit(1)


async def _scan_watch(scanner: WatchScanner, name: str, *, again: bool) -> str:
    """What is wrong, or nothing."""
    try:
        scanned = await scanner.scan_watch(name, retry_failed=again)
    except Busy as error:
        console.print(f"[yellow]{escape(str(error))}[/]", highlight=False)
        return str(error)
    _print_scan_result(scanned)
    return scanned.problem or ""


def _print_scan_result(scanned: WatchScanReport) -> None:
    came = scanned.result
    said = f"[bold]{scanned.watch.name}[/]  {came.found:,} found · {came.submitted:,} submitted"
    console.print(said, highlight=False)
    if scanned.problem:
        console.print(f"  [red]{escape(scanned.problem)}[/]", highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, show_header=False)
    for file in scanned.files:
        table.add_row(*_format_file_row(file))
    console.print(table)


def _format_file_row(file: WatchFile) -> tuple[str, str, str]:
    colour = _FILE_STATE_COLOURS.get(file.state, "cyan")
    return f"  [{colour}]{file.state}[/]", escape(file.path), escape(file.note or "")


def _print_watch_status(watch: Watch, status: Mapping[str, Any]) -> None:
    every = "manual" if watch.every is None else f"every {watch.every:g} s"
    console.print(f"[bold]{watch.name}[/]  {escape(str(watch.source))}  {watch.task}  {every}", highlight=False)
    counts = status.get("counts") or {}
    files = " · ".join(f"{counts[state]:,} {state}" for state in FileState if state in counts)
    when = status.get("scanned_at")
    said = "never scanned" if when is None else f"scanned {when:%Y-%m-%d %H:%M:%S %Z}"
    console.print(f"  {said}{'  ' + files if files else ''}", highlight=False)
    if status.get("problem"):
        console.print(f"  [red]{escape(status['problem'])}[/]", highlight=False, soft_wrap=True)
