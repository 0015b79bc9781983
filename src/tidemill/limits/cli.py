"""The command about limiters."""

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.limits import use_cases
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import run_with_runtime
from tidemill.terminal.console import console

commands = typer.Typer()


@commands.command()
def limiters(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of them")] = None,
    rate: Annotated[str | None, typer.Option(help="Change its rate for everybody, as in 5/s")] = None,
    burst: Annotated[int | None, typer.Option(help="What may come at once")] = None,
    concurrency: Annotated[int | None, typer.Option(help="What may be at it at a time")] = None,
    unblock: Annotated[bool, typer.Option("--unblock", help="Lift its block")] = False,
) -> None:
    """Show how often others may be called, and what that is at; change it, or lift a block."""
    changes = {"rate": rate, "burst": burst, "concurrency": concurrency}
    changed = any(value is not None for value in changes.values())
    if name is None and (changed or unblock):
        raise typer.BadParameter("say which limiter")

    async def action(runtime: Runtime) -> list[dict[str, Any]]:
        if name is None:
            return await use_cases.list_limiters(runtime.db)
        if changed:
            await use_cases.change_limiter(runtime.db, name, by="command line", **changes)  # type: ignore[arg-type]
        if unblock:
            await use_cases.unblock_limiter(runtime.db, name, by="command line")
        return [await use_cases.get_limiter(runtime.db, name)]

    found = run_with_runtime(action)
    console.print(_build_limiters_table(found) if found else "no limiter was ever declared to a worker")


def _build_limiters_table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("limiter", "rate/s", "now", "burst", "at a time", "in use", "waiting", "taken", "refused", "state"):
        table.add_column(column, no_wrap=True, justify="left" if column in ("limiter", "state") else "right")
    for row in found:
        table.add_row(
            escape(row["name"]),
            *(_format_number(row[field]) for field in ("rate", "current_rate")),
            "-" if row["rate"] is None else str(row["burst"]),
            *(_format_number(row[field]) for field in ("concurrency", "in_use", "waiting", "taken", "refused")),
            _format_limiter_state(row),
        )
    return table


def _format_limiter_state(row: dict[str, Any]) -> str:
    if row["blocked_until"] is not None:
        return f"[red]blocked until {row['blocked_until'].isoformat(timespec='seconds')}[/]"
    if row["blocked_members"]:
        return f"[yellow]{row['blocked_members']} of {row['members']} members blocked[/]"
    return "changed" if row["changed"] else "open"


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.10g}"
