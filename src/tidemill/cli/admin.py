"""Commands for the installation: schema, old rows, invariants, and quarantined broker messages."""

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
from tidemill.terminal.console import JsonOption, console, parse_age_seconds

commands = typer.Typer()


@commands.command()
def migrate() -> None:
    """Migrate the database schema to the current version. Several processes may run this at once."""

    async def action(runtime: Runtime) -> list[str]:
        return await administration.migrate_schema(runtime.db)

    for name in run_with_runtime(action, check=False):
        console.print(f"Applied {name}")
    console.print("The schema is up to date")


@commands.command()
def purge(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Minimum age, such as 90d, 12w or 36h")],
) -> None:
    """Drop the rows of jobs that closed longer ago than this, in complete weeks. Job counts are kept."""
    seconds = parse_age_seconds(older_than)

    async def action(runtime: Runtime) -> list[str]:
        return await administration.purge_jobs(runtime.db, seconds)

    weeks = run_with_runtime(action)
    console.print(
        f"Dropped {', '.join(weeks)}" if weeks else "Nothing to drop: no complete week of closed jobs is that old"
    )


@commands.command()
def doctor() -> None:
    """Check the settings, the server and all invariants of the engine. The exit code is 1 if a check fails."""
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
    limit: Annotated[
        int, typer.Option(min=1, max=QUARANTINE_MAX_MESSAGES, help="Maximum number of messages, newest first")
    ] = 20,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the shown messages and all older ones")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show broker messages that are not valid hints, and hints that the broker rejected."""

    async def action(runtime: Runtime) -> list[QuarantinedMessage]:
        messages = await runtime.db.read(list_quarantined_messages, limit)
        if clear and messages:
            await runtime.db.run(delete_quarantined_messages, messages[0].id)
        return messages

    messages = run_with_runtime(action)
    for one in messages:
        if as_json:
            typer.echo(json.dumps(asdict(one), default=str))
        else:
            head = f"[bold]{one.id}[/]  {one.at:%Y-%m-%d %H:%M:%S}  {one.source}, {one.size:,} bytes"
            console.print(f"{head}: {escape(one.reason)}", highlight=False, soft_wrap=True)
            console.print(f"    [dim]{escape(one.message)}[/]", highlight=False, soft_wrap=True)
    if not as_json:
        console.print(_format_quarantine_footer(len(messages), cleared=clear and bool(messages)))


def _format_quarantine_footer(shown: int, *, cleared: bool) -> str:
    if cleared:
        return "Deleted these messages and all older ones"
    return f"Newest {shown:,} messages" if shown else "The quarantine is empty"
