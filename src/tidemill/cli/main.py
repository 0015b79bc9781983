"""The entry point of the ``tidemill`` command."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.markup import escape

from tidemill.cli.command_group import CommandGroup
from tidemill.core.errors import PROBLEMS_IN_MESSAGE_MAX, InvalidRows, TidemillError
from tidemill.terminal.command_host import CommandHost, set_command_host_factory
from tidemill.terminal.console import error_console

app = typer.Typer(name="tidemill", cls=CommandGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def _make_command_host() -> CommandHost:
    from tidemill.app.bootstrap import LocalCommandHost  # noqa: PLC0415  `tidemill --help` needs no database driver

    return LocalCommandHost()


set_command_host_factory(_make_command_host)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"tidemill {version('tidemill')}")
        raise typer.Exit


@app.callback()
def tidemill(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A persist-first bulk job engine on PostgreSQL: every row is stored before it is processed, and none is lost.

    To try it, run `tidemill demo`, then `tidemill up`. `tidemill COMMAND --help` explains a command.
    """


def main() -> None:
    """Run a command; print a TidemillError as a message and exit with code 2."""
    try:
        app()
    except TidemillError as error:
        first, *others = _format_error_lines(error)
        error_console.print(f"[red]error:[/] {escape(first)}", highlight=False, soft_wrap=True)
        for line in others:
            error_console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
        sys.exit(2)


def _format_error_lines(error: TidemillError) -> list[str]:
    """Return the message of an error, with one line per invalid row of a file."""
    if not isinstance(error, InvalidRows) or error.count == 1:
        return [str(error)]
    shown, more = error.problems[:PROBLEMS_IN_MESSAGE_MAX], error.count - PROBLEMS_IN_MESSAGE_MAX
    return ["No rows were changed", *shown, *([f"and {more:,} more"] if more > 0 else [])]
