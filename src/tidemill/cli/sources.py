"""Watches from a terminal: what they are, and scanning them now."""

import os
import socket
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.app import make_resources, make_scanner, run_in
from tidemill.cli.load import PLAIN, load_mill
from tidemill.cli.views import console
from tidemill.config import Settings, load_settings
from tidemill.domain.errors import Busy, InvalidInput
from tidemill.domain.watching import FileState, Watch, WatchFile
from tidemill.operations.scanning import Scanned, Scanner
from tidemill.store import watches
from tidemill.store.database import Database

commands = typer.Typer()
App = Annotated[str, typer.Option(help="MODULE:NAME of a mill that declares resources")]
_COLOURS = {FileState.PROCESSED: "green", FileState.FAILED: "red", FileState.REJECTED: "red", FileState.REFUSED: "red"}


@commands.command("sources")
def sources_command(app: App = PLAIN) -> None:
    """The watches that are declared: what they watch, their last scans, their files, and what is wrong."""
    settings = load_settings()

    async def action(db: Database) -> tuple[list[Watch], dict[str, dict[str, Any]]]:
        own = list(_scanner(db, settings, app).all.values())
        return own, await db.run(watches.standings, [one.name for one in own])

    own, known = run_in(settings, action)
    if not own:
        console.print("no watches are declared: see [watches.NAME] in tidemill.toml", markup=False)
    for one in own:
        _show_watch(one, known.get(one.name, {}))


@commands.command("scan")
def scan_command(
    name: Annotated[str | None, typer.Argument(help="A watch; without a name, all of them")] = None,
    again: Annotated[bool, typer.Option("--again", help="Try files once more that failed and are there")] = False,
    app: App = PLAIN,
) -> None:
    """Look now at what a watch watches, whatever its schedule; exit code 1 if something is wrong with it."""
    settings = load_settings()

    async def action(db: Database) -> list[str]:
        scanner = _scanner(db, settings, app)
        if name is not None and name not in scanner.all:
            raise InvalidInput(f"there is no watch {name!r}; declared are: {', '.join(scanner.all) or 'none'}")
        return [await _scan(scanner, one, again=again) for one in ([name] if name else scanner.all)]

    if any(run_in(settings, action)):
        raise typer.Exit(1)


def _scanner(db: Database, settings: Settings, app: str) -> Scanner:
    resources = make_resources(settings, load_mill(app).registry)
    return make_scanner(db, settings, resources, worker=f"{socket.gethostname()}-{os.getpid()}-scan")


async def _scan(scanner: Scanner, name: str, *, again: bool) -> str:
    """What is wrong, or nothing."""
    try:
        scanned = await scanner.scan(name, again=again)
    except Busy as error:
        console.print(f"[yellow]{escape(str(error))}[/]", highlight=False)
        return str(error)
    _show_scan(scanned)
    return scanned.problem or ""


def _show_scan(scanned: Scanned) -> None:
    came = scanned.came
    said = f"[bold]{scanned.watch.name}[/]  {came.found:,} found · {came.submitted:,} submitted"
    console.print(said, highlight=False)
    if scanned.problem:
        console.print(f"  [red]{escape(scanned.problem)}[/]", highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, show_header=False)
    for file in scanned.files:
        table.add_row(*_row(file))
    console.print(table)


def _row(file: WatchFile) -> tuple[str, str, str]:
    colour = _COLOURS.get(file.state, "cyan")
    return f"  [{colour}]{file.state}[/]", escape(file.path), escape(file.note or "")


def _show_watch(watch: Watch, known: Mapping[str, Any]) -> None:
    every = "manual" if watch.every is None else f"every {watch.every:g} s"
    console.print(f"[bold]{watch.name}[/]  {escape(str(watch.source))}  {watch.task}  {every}", highlight=False)
    counts = known.get("counts") or {}
    files = " · ".join(f"{counts[state]:,} {state}" for state in FileState if state in counts)
    when = known.get("scanned_at")
    said = "never scanned" if when is None else f"scanned {when:%Y-%m-%d %H:%M:%S %Z}"
    console.print(f"  {said}{'  ' + files if files else ''}", highlight=False)
    if known.get("problem"):
        console.print(f"  [red]{escape(known['problem'])}[/]", highlight=False, soft_wrap=True)
