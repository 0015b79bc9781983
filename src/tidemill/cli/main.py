"""The entry point of the ``tidemill`` command: the module that defines each command, and its summary in the help.

Listing the commands imports none of these modules; running a command imports only its own module.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points, version
from typing import Annotated, Any, cast

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from tidemill.app.feature_list import load_enabled_features
from tidemill.core.errors import PROBLEMS_IN_MESSAGE_MAX, InvalidRows, TidemillError
from tidemill.terminal.command_host import CommandHost, set_command_host_factory
from tidemill.terminal.console import error_console

PLUGIN_ENTRY_POINT_GROUP = "tidemill.commands"
FEATURES_PANEL, PLUGINS_PANEL = "Import, export and match", "Other packages"
HELP_PANELS = {
    "tidemill.cli.run": "Run",
    "tidemill.cli.demo": "Run",
    "tidemill.cli.inspect": FEATURES_PANEL,
    "tidemill.jobs.cli": "Jobs",
    "tidemill.limits.cli": "Operate",
    "tidemill.cli.admin": "Operate",
    "tidemill.torture.cli": "Operate",
    "tidemill.accounts.cli": "Operate",
}
RUN_COMMANDS = {
    "tidemill.cli.run": {
        "worker": "Run a worker for the handlers of a mill and for built-in kinds, until Ctrl-C or SIGTERM.",
        "serve": "Run the HTTP API and the web UI, without a worker, until Ctrl-C or SIGTERM.",
        "up": "Run the database, the HTTP API, the web UI and a worker on this machine, until Ctrl-C.",
    },
}
CORE_COMMANDS = {
    "tidemill.cli.inspect": {
        "inspect": "Show the layout, columns, first rows and defects of files, or write their tables as CSV.",
    },
    "tidemill.jobs.cli": {
        "submit": "Create a job from the rows of a file. The file is stored first, then workers ingest it.",
        "jobs": "List the newest jobs.",
        "watch": "Follow a job until it closes. The exit code is 0 only if the job completed.",
        "pause": "Pause a job. Running batches finish.",
        "resume": "Resume a paused job.",
        "cancel": "Cancel the waiting items of a job. Running items finish and keep their results.",
        "delete": "Delete a job with all its rows and results.",
        "retry": "Retry the failed items of jobs, and items that were cancelled because their job failed.",
        "reprocess": "Run settled items of one job again, including successful items. To retry failures, use retry.",
        "items": "Print the items of a job, one JSON object per line.",
    },
    "tidemill.limits.cli": {
        "limiters": "Show limiters and their usage, or change or unblock a limiter.",
    },
    "tidemill.cli.admin": {
        "sql": "Run SQL statements on the configured database. Without FILE and -c, open psql.",
        "config": "Show every setting, its value and the source of the value. Passwords and secrets are masked.",
        "migrate": "Migrate the database schema to the current version. Several processes may run this at once.",
        "purge": "Delete the rows of old closed jobs, a complete week at a time. Job counts are kept.",
        "doctor": "Check the settings, the server and all invariants of the engine. The exit code is 1 if a check "
        "fails.",
        "quarantine": "Show broker messages that are not valid hints (wake-up messages for workers), and hints the "
        "broker rejected.",
    },
    "tidemill.cli.demo": {
        "demo": "Import three files with some invalid rows into the embedded PostgreSQL, then export rows and "
        "distribute files.",
    },
    "tidemill.torture.cli": {
        "torture": "Inject random faults into real processes, and prove that no row is lost, doubled or stuck.",
    },
    "tidemill.accounts.cli": {
        "users": "Manage users.",
        "keys": "Manage API keys.",
    },
}


@cache
def load_command_summaries() -> dict[str, dict[str, str]]:
    """Return module -> command -> summary in the help, for the core and all features."""
    of_features = {
        module: dict(summaries) for feature in load_enabled_features() for module, summaries in feature.commands.items()
    }
    return RUN_COMMANDS | of_features | CORE_COMMANDS


@cache
def _map_commands_to_modules() -> dict[str, str]:
    return {name: module for module, summaries in load_command_summaries().items() for name in summaries}


class CommandGroup(TyperGroup):
    """The commands of this package and of installed plugins."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = cast("Any", LazyCommands())

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        listed = [
            TyperCommand(name=name, help=text, rich_help_panel=HELP_PANELS.get(module, FEATURES_PANEL))
            for module, found in load_command_summaries().items()
            for name, text in found.items()
        ]
        for plugin in entry_points(group=PLUGIN_ENTRY_POINT_GROUP):
            summary = plugin.dist.metadata["Summary"] if plugin.dist else ""
            listed.append(TyperCommand(name=plugin.name, help=summary, rich_help_panel=PLUGINS_PANEL))
        TyperGroup(
            name=self.name,
            commands=listed,
            help=self.help,
            params=self.params,
            rich_markup_mode=self.rich_markup_mode,
        ).format_help(ctx, formatter)


def _use_plain_help(command: Any) -> Any:
    """List the options of a command without a table, in which 80 columns leave no room for the help of long options."""
    command.rich_markup_mode = None
    for subcommand in getattr(command, "commands", {}).values():
        _use_plain_help(subcommand)
    return command


class LazyCommands(Mapping[str, Any]):
    """Commands by name. A lookup imports the module of that command."""

    def __init__(self) -> None:
        self._plugins = {plugin.name: plugin for plugin in entry_points(group=PLUGIN_ENTRY_POINT_GROUP)}

    def __getitem__(self, name: str) -> Any:
        modules = _map_commands_to_modules()
        if name in modules:
            return _use_plain_help(get_group(import_module(modules[name]).commands).commands[name])
        parent = typer.Typer()
        parent.add_typer(self._plugins[name].load(), name=name)
        return _use_plain_help(get_group(parent).commands[name])

    def __iter__(self) -> Iterator[str]:
        yield from _map_commands_to_modules()
        yield from self._plugins

    def __len__(self) -> int:
        return len(_map_commands_to_modules()) + len(self._plugins)


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
