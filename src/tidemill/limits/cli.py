"""The command about limiters."""

from typing import Annotated, Any

import typer
from rich.markup import escape

from tidemill.limits import use_cases
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import run_with_runtime
from tidemill.terminal.console import JsonOption, console, print_json_lines, print_table

commands = typer.Typer()


@commands.command()
def limiters(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show only this limiter")] = None,
    rate: Annotated[str | None, typer.Option(help="Set the maximum rate for all workers, such as 5/s")] = None,
    burst: Annotated[
        int | None, typer.Option(help="Set the burst: the maximum number of calls that start at once")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Set the maximum number of concurrent calls")] = None,
    unblock: Annotated[bool, typer.Option("--unblock", help="Unblock the limiter, so that calls can start")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show limiters and their usage, or change or unblock a limiter."""
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
    if rows:
        _print_limiters_table(rows)
    else:
        console.print("No worker has declared a limiter yet.")


def _print_limiters_table(rows: list[dict[str, Any]]) -> None:
    numbers = ("rate/s", "current", "burst", "concurrency", "in use", "waiting", "permits", "throttled")
    cells = [
        (
            escape(row["name"]),
            *(_format_number(row[field]) for field in ("rate", "current_rate")),
            "-" if row["rate"] is None else str(row["burst"]),
            *(_format_number(row[field]) for field in ("concurrency", "in_use", "waiting", "taken", "refused")),
            _format_limiter_state(row),
        )
        for row in rows
    ]
    print_table(
        ("limiter", *numbers, "state"),
        cells,
        numbers=numbers,
        foldable=("limiter", "state"),
        hide_first=("permits", "throttled", "burst", "in use", "waiting"),
    )


def _format_limiter_state(row: dict[str, Any]) -> str:
    if row["blocked_until"] is not None:
        return f"[red]blocked until {row['blocked_until'].isoformat(timespec='seconds')}[/]"
    if row["blocked_members"]:
        return f"[yellow]{row['blocked_members']} of {row['members']} members blocked[/]"
    return "changed" if row["changed"] else "open"


def _format_number(value: float | None) -> str:
    """Format a count, or a rate with three digits: a rate that adapts has many decimals."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004
