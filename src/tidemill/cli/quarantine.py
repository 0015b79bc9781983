"""The command about messages that are no hints."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from tidemill.app import run_in
from tidemill.cli.views import console
from tidemill.config import load_settings
from tidemill.store import quarantine as store
from tidemill.store.database import Database
from tidemill.store.quarantine import Quarantined

commands = typer.Typer()


@commands.command()
def quarantine(
    limit: Annotated[int, typer.Option(min=1, max=store.KEEP, help="The newest so many")] = 20,
    clear: Annotated[bool, typer.Option("--clear", help="Forget those that are shown, and all older ones")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line")] = False,
) -> None:
    """Show messages of the broker that are no hints, and hints that it would not take."""

    async def action(db: Database) -> list[Quarantined]:
        found = await db.run(store.list_quarantine, limit)
        if clear and found:
            await db.run(store.clear, found[0].id)
        return found

    found = run_in(load_settings(), action)
    for one in found:
        if as_json:
            typer.echo(json.dumps(asdict(one), default=str))
        else:
            head = f"[bold]{one.id}[/]  {one.at:%Y-%m-%d %H:%M:%S}  {one.source}, {one.size:,} bytes"
            console.print(f"{head}: {escape(one.reason)}", highlight=False, soft_wrap=True)
            console.print(f"    [dim]{escape(one.message)}[/]", highlight=False, soft_wrap=True)
    if not as_json:
        console.print(_ending(len(found), cleared=clear and bool(found)))


def _ending(shown: int, *, cleared: bool) -> str:
    if cleared:
        return "these and all older ones are forgotten"
    return "that is all, or the newest of them" if shown else "the quarantine is empty"
