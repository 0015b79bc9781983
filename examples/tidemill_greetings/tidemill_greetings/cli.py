"""The command `tidemill greet`."""

from typing import Annotated

import typer

from tidemill.runtime import Runtime
from tidemill.terminal.command_host import run_with_runtime
from tidemill.terminal.console import console
from tidemill_greetings import greetings

commands = typer.Typer()


@commands.command("greet")
def greet_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The people to greet")],
    language: Annotated[str, typer.Option(help="A language from the section [greetings] of tidemill.toml")] = "english",
) -> None:
    """Submit a job that greets people."""

    async def action(runtime: Runtime) -> str:
        return (await greetings.submit_greetings(runtime, names, language)).key

    console.print(run_with_runtime(action))
