"""The command about limiters."""

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.limits import use_cases
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import run_with_runtime
from tidemill.terminal.console import JsonOption, console, print_json_lines

commands = typer.Typer()


@commands.command()
def limiters(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show only this limiter")] = None,
    rate: Annotated[str | None, typer.Option(help="Set the rate for all workers, as in 5/s")] = None,
    burst: Annotated[int | None, typer.Option(help="Set the number of calls that may start at once")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Set the number of calls that may run at a time")] = None,
    unblock: Annotated[bool, typer.Option("--unblock", help="Remove the block of the limiter")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show limiters and their usage; change or unblock one."""
    changes = {"rate": rate, "burst": burst, "concurrency": concurrency}
    changed = any(value is not None for value in changes.values())
    if name is None and (changed or unblock):
        raise typer.BadParameter("NAME is required to change or unblock a limiter")

    async def action(runtime: Runtime) -> list[dict[str, Any]]:
        if name is None:
            return await use_cases.list_limiters(runtime.db)
        if changed:
            await use_cases.change_limiter(runtime.db, name, by="command line", **changes)  # type: ignore[arg-type]
        if unblock:
            await use_cases.unblock_limiter(runtime.db, name, by="command line")
        return [await use_cases.get_limiter(runtime.db, name)]

    rows = run_with_runtime(action)
    if as_json:
        print_json_lines(rows)
        return
    console.print(_build_limiters_table(rows) if rows else "No worker has declared a limiter yet.")


def _build_limiters_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = ("limiter", "rate/s", "current", "burst", "concurrency", "in use", "waiting", "permits", "throttled")
    for column in (*columns, "state"):
        table.add_column(column, no_wrap=True, justify="left" if column in ("limiter", "state") else "right")
    for row in rows:
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
