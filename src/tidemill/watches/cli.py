"""The commands `tidemill sources` and `tidemill scan`."""

import os
import socket
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.core.errors import Busy, InvalidInput
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import (
    BUILTIN_MILL_REFERENCE,
    MILL_DEFAULT_HELP,
    resolve_mill,
    run_with_runtime,
)
from tidemill.terminal.console import JsonOption, console, error_console, print_json_lines
from tidemill.watches.file_state import FileState, WatchFile
from tidemill.watches.scanner import WatchScanner, WatchScanReport, make_watch_scanner
from tidemill.watches.use_cases import WatchStatus, decide_held_file, list_watch_statuses

commands = typer.Typer()
WatchMillOption = Annotated[
    str,
    typer.Option(
        callback=resolve_mill,
        show_default=MILL_DEFAULT_HELP,
        help="MODULE:NAME of a mill that declares resources",
    ),
]
_FILE_STATE_COLOURS = {
    FileState.PROCESSED: "green",
    FileState.FAILED: "red",
    FileState.REJECTED: "red",
    FileState.HELD: "yellow",
    FileState.REFUSED: "red",
}


@commands.command("sources")
def sources_command(app: WatchMillOption = BUILTIN_MILL_REFERENCE, as_json: JsonOption = False) -> None:
    """List the declared watches with their sources, last scans, file counts and problems."""
    statuses = run_with_runtime(lambda runtime: list_watch_statuses(runtime, None), app=app)
    if as_json:
        print_json_lines([status.to_json() for status in statuses])
        return
    if not statuses:
        console.print("No watches. Declare one as [watches.NAME] in tidemill.toml.", markup=False)
    for status in statuses:
        _print_watch_status(status)


@commands.command("scan")
def scan_command(
    name: Annotated[str | None, typer.Argument(help="Name of a watch; default: all watches")] = None,
    again: Annotated[bool, typer.Option("--again", help="Retry failed files that still exist")] = False,
    accept: Annotated[
        str | None, typer.Option(metavar="PATH", help="Before the scan, accept this file, whose columns have changed")
    ] = None,
    reject: Annotated[
        str | None, typer.Option(metavar="PATH", help="Before the scan, reject this file, whose columns have changed")
    ] = None,
    app: WatchMillOption = BUILTIN_MILL_REFERENCE,
    as_json: JsonOption = False,
) -> None:
    """Scan a watch now, regardless of its schedule. The exit code is 1 if the scan reports a problem."""

    async def action(runtime: Runtime) -> list[str]:
        scanner = make_watch_scanner(runtime, f"{socket.gethostname()}-{os.getpid()}-scan")
        if name is not None and name not in scanner.watches:
            declared = ", ".join(scanner.watches) or "none"
            raise InvalidInput(f'Unknown watch "{name}". Declared watches: {declared}.')
        for path, is_accepted in ((accept, True), (reject, False)):
            if path is not None and name is None:
                raise InvalidInput("--accept and --reject need the name of a watch")
            if path is not None:
                await decide_held_file(runtime, None, name or "", path=path, accept=is_accepted)
        names = [name] if name else scanner.watches
        return [await _scan_watch_and_print(scanner, one, again=again, as_json=as_json) for one in names]

    if any(run_with_runtime(action, app=app)):
        raise typer.Exit(1)


async def _scan_watch_and_print(scanner: WatchScanner, name: str, *, again: bool, as_json: bool) -> str:
    """Scan a watch and print the report. Return the problem of the scan, or an empty string."""
    try:
        report = await scanner.scan_watch(name, retry_failed=again)
    except Busy as error:
        error_console.print(f"[yellow]{escape(str(error))}[/]", highlight=False, soft_wrap=True)
        return str(error)
    if as_json:
        print_json_lines([_build_scan_summary(report)])
    else:
        _print_scan_report(report)
    return report.problem or ""


def _print_scan_report(report: WatchScanReport) -> None:
    found, submitted = report.result.found, report.result.submitted
    console.print(f"[bold]{report.watch.name}[/]  {found:,} found · {submitted:,} submitted", highlight=False)
    if report.problem:
        console.print(f"  [red]{escape(report.problem)}[/]", highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, show_header=False)
    for file in report.files:
        table.add_row(*_format_file_row(file))
    console.print(table)


def _build_scan_summary(report: WatchScanReport) -> dict[str, Any]:
    return {
        "name": report.watch.name,
        "found": report.result.found,
        "submitted": report.result.submitted,
        "problem": report.problem,
        "files": [{"path": one.path, "state": one.state, "note": one.note} for one in report.files],
    }


def _format_file_row(file: WatchFile) -> tuple[str, str, str]:
    colour = _FILE_STATE_COLOURS.get(file.state, "cyan")
    return f"  [{colour}]{file.state}[/]", escape(file.path), escape(file.note or "")


def _print_watch_status(status: WatchStatus) -> None:
    watch, state = status.watch, status.state
    every = "manual" if watch.every is None else f"every {watch.every:g} s"
    source, task = escape(str(watch.source)), escape(watch.task.describe())
    console.print(f"[bold]{watch.name}[/]  {source}  {task}  {every}", highlight=False)
    counts = state.get("counts") or {}
    files = " · ".join(f"{counts[name]:,} {name}" for name in FileState if name in counts)
    scanned_at = state.get("scanned_at")
    last_scan = "never scanned" if scanned_at is None else f"scanned {scanned_at:%Y-%m-%d %H:%M:%S %Z}"
    console.print(f"  {last_scan}{'  ' + files if files else ''}", highlight=False)
    if state.get("problem"):
        console.print(f"  [red]{escape(state['problem'])}[/]", highlight=False, soft_wrap=True)
