"""Commands about the installation: its schema, old rows, invariants, and messages of the broker in quarantine."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from tidemill.dispatch.outbox import (
    QUARANTINE_MAX_MESSAGES,
    QuarantinedMessage,
    delete_quarantined_messages,
    list_quarantined_messages,
)
from tidemill.jobs import administration
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import run_with_runtime
from tidemill.terminal.console import console, parse_age_seconds

commands = typer.Typer()


@commands.command()
def migrate() -> None:
    """Bring the database's schema up to date. Safe to run from many processes at once."""

    async def action(runtime: Runtime) -> list[str]:
        return await administration.migrate_schema(runtime.db)

    for name in run_with_runtime(action, check=False):
        console.print(f"ran {name}")
    console.print("the schema is up to date")


@commands.command()
def purge(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="As in 90d, 12w, 36h")],
) -> None:
    """Drop the rows of jobs that were closed longer ago than that, whole weeks at a time; their counts stay."""
    seconds = parse_age_seconds(older_than)

    async def action(runtime: Runtime) -> list[str]:
        return await administration.purge_jobs(runtime.db, seconds)

    weeks = run_with_runtime(action)
    console.print(f"dropped {', '.join(weeks)}" if weeks else "nothing is that old: no whole week of closed jobs")


@commands.command()
def doctor() -> None:
    """Check the settings, the server and every invariant of the engine; exit code 1 if something is wrong."""
    findings = run_with_runtime(lambda runtime: administration.check_installation(runtime.db))
    for finding in findings:
        mark = "[green]ok[/]  " if finding.ok else ("[yellow]warn[/]" if finding.is_warning else "[red]BAD[/] ")
        console.print(f"{mark} {finding.name}", highlight=False)
        for line in finding.details:
            console.print(f"       {line}", highlight=False)
    if any(not finding.ok and not finding.is_warning for finding in findings):
        raise typer.Exit(1)


@commands.command()
def quarantine(
    limit: Annotated[int, typer.Option(min=1, max=QUARANTINE_MAX_MESSAGES, help="The newest so many")] = 20,
    clear: Annotated[bool, typer.Option("--clear", help="Forget those that are shown, and all older ones")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line")] = False,
) -> None:
    """Show messages of the broker that are no hints, and hints that it would not take."""

    async def action(runtime: Runtime) -> list[QuarantinedMessage]:
        found = await runtime.db.read(list_quarantined_messages, limit)
        if clear and found:
            await runtime.db.run(delete_quarantined_messages, found[0].id)
        return found

    found = run_with_runtime(action)
    for one in found:
        if as_json:
            typer.echo(json.dumps(asdict(one), default=str))
        else:
            head = f"[bold]{one.id}[/]  {one.at:%Y-%m-%d %H:%M:%S}  {one.source}, {one.size:,} bytes"
            console.print(f"{head}: {escape(one.reason)}", highlight=False, soft_wrap=True)
            console.print(f"    [dim]{escape(one.message)}[/]", highlight=False, soft_wrap=True)
    if not as_json:
        console.print(_format_quarantine_footer(len(found), cleared=clear and bool(found)))


def _format_quarantine_footer(shown: int, *, cleared: bool) -> str:
    if cleared:
        return "these and all older ones are forgotten"
    return "that is all, or the newest of them" if shown else "the quarantine is empty"
