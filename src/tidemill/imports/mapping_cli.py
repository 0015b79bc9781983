"""The commands of remembered mappings: list, show, share and forget them."""

from typing import Annotated

import typer
from rich.markup import escape

from tidemill.core.json_input import JsonObject
from tidemill.core.list_pages import PAGE_MAX_ROWS
from tidemill.imports.remembered_mappings import forget_mapping, get_own_mapping, list_mappings, share_mapping
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import (
    run_with_runtime,
)
from tidemill.terminal.console import (
    JsonOption,
    console,
    print_json_lines,
    print_table,
)

commands = typer.Typer()
mappings_commands = typer.Typer(no_args_is_help=True)
commands.add_typer(
    mappings_commands, name="mappings", help="List the remembered column mappings of imports, and share or forget them."
)
MappingArgument = Annotated[int, typer.Argument(metavar="MAPPING", help="Number of a mapping, as the list shows it")]


@mappings_commands.command("list")
def list_mappings_command(
    into: Annotated[str | None, typer.Option(help="Only mappings of this table or resource")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the remembered mappings of all users, the most recently used first."""

    async def action(runtime: Runtime) -> list[JsonObject]:
        page = await list_mappings(runtime.db, None, (), resource=into, limit=PAGE_MAX_ROWS, after=None)
        return [one.to_json() for one in page.items]

    mappings = run_with_runtime(action)
    if as_json:
        print_json_lines(mappings)
        return
    names = ("id", "resource", "owner", "shared", "uses", "job_key", "used_at")
    cells = [[str(one[name]) for name in names[:-1]] + [f"{one['used_at']:%Y-%m-%d %H:%M}"] for one in mappings]
    print_table(names, [[escape(cell) for cell in row] for row in cells], numbers=["id", "uses"])


@mappings_commands.command("show")
def show_mapping_command(mapping: MappingArgument) -> None:
    """Print a mapping with its columns and options as JSON."""

    async def action(runtime: Runtime) -> JsonObject:
        return (await get_own_mapping(runtime.db, None, mapping)).to_json()

    print_json_lines([run_with_runtime(action)])


@mappings_commands.command("share")
def share_mapping_command(
    mapping: MappingArgument,
    stop: Annotated[bool, typer.Option("--stop", help="Stop sharing it")] = False,
) -> None:
    """Share a mapping with all users who may import into its resource."""
    run_with_runtime(lambda runtime: share_mapping(runtime.db, None, mapping, shared=not stop))
    console.print(f"{'Stopped sharing' if stop else 'Shared'} mapping {mapping}", highlight=False)


@mappings_commands.command("forget")
def forget_mapping_command(mapping: MappingArgument) -> None:
    """Delete a mapping. Imports of files with its columns no longer propose it."""
    run_with_runtime(lambda runtime: forget_mapping(runtime.db, None, mapping))
    console.print(f"Forgot mapping {mapping}", highlight=False)
