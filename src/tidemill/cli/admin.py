"""Commands about the installation."""

import re
from typing import Annotated

import typer

from tidemill.app import run_in
from tidemill.cli.views import console
from tidemill.config import load_settings
from tidemill.domain.errors import InvalidInput
from tidemill.store import migrate as store
from tidemill.store import partitions
from tidemill.store.database import Database
from tidemill.store.doctor import Finding, examine

commands = typer.Typer()
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@commands.command()
def migrate() -> None:
    """Bring the database's schema up to date. Safe to run from many processes at once."""
    ran = run_in(load_settings(), store.migrate, check=False)
    for name in ran:
        console.print(f"ran {name}")
    console.print("the schema is up to date")


@commands.command()
def purge(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="As in 90d, 12w, 36h")],
) -> None:
    """Drop the rows of jobs that were closed longer ago than that, whole weeks at a time; their counts stay."""
    seconds = parse_age(older_than)

    async def action(db: Database) -> list[str]:
        return await partitions.purge(db, seconds)

    weeks = run_in(load_settings(), action)
    console.print(f"dropped {', '.join(weeks)}" if weeks else "nothing is that old: no whole week of closed jobs")


@commands.command()
def doctor() -> None:
    """Check the settings, the server and every invariant of the engine; exit code 1 if something is wrong."""
    findings: list[Finding] = run_in(load_settings(), examine)
    for finding in findings:
        mark = "[green]ok[/]  " if finding.ok else ("[yellow]warn[/]" if finding.is_warning else "[red]BAD[/] ")
        console.print(f"{mark} {finding.name}", highlight=False)
        for line in finding.details:
            console.print(f"       {line}", highlight=False)
    if any(not finding.ok and not finding.is_warning for finding in findings):
        raise typer.Exit(1)


def parse_age(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip().lower())
    if found is None:
        raise InvalidInput(f"{text!r} is not an age: say 90d, 12w, 36h, 30m or 10s")
    return float(found[1]) * _UNITS[found[2]]
