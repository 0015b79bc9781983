"""The commands of `tidemill`: which module defines each, and its line in the help.

Listing the commands imports none of these modules; running a command imports its own only.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from tidemill.app.feature_list import load_enabled_features

PLUGIN_ENTRY_POINT_GROUP = "tidemill.commands"
RUN_COMMANDS = {
    "tidemill.cli.run": {
        "worker": "Run imports, exports and the handlers of a mill, if one is named, until stopped with Ctrl-C or "
        "SIGTERM.",
        "serve": "Run the HTTP API until stopped. With a mill, kickoff runs its handlers for the length of a request.",
        "up": "Everything on this machine, until stopped: the database, brought up to date, the HTTP API and a worker.",
    },
}
CORE_COMMANDS = {
    "tidemill.jobs.cli": {
        "submit": "Make a job of a file's rows. The file is stored first; workers then read it.",
        "jobs": "List the newest jobs.",
        "watch": "Follow a job to its end; the exit code is 0 only if it completed.",
        "pause": "Stop taking batches of a job; what is being worked on finishes.",
        "resume": "Go on with a paused job.",
        "cancel": "Cancel what waits; what is being worked on finishes and keeps its results.",
        "delete": "Remove a job with all its rows and results.",
        "reprocess": "Send settled items of a job round again, opening it if it is closed.",
        "redrive": "Send failed items of jobs, and what a failed job had cancelled, round again.",
        "items": "Print a job's items, one JSON object a line.",
    },
    "tidemill.limits.cli": {
        "limiters": "Show how often others may be called, and what that is at; change it, or lift a block.",
    },
    "tidemill.cli.admin": {
        "migrate": "Bring the database's schema up to date. Safe to run from many processes at once.",
        "purge": "Drop the rows of jobs that were closed longer ago than that, whole weeks at a time; their counts "
        "stay.",
        "doctor": "Check the settings, the server and every invariant of the engine; exit code 1 if something is "
        "wrong.",
        "quarantine": "Show messages of the broker that are no hints, and hints that it would not take.",
    },
    "tidemill.cli.demo": {
        "demo": "Import three files with some bad rows into tables of the embedded PostgreSQL; export rows, "
        "distribute files.",
    },
    "tidemill.accounts.cli": {
        "users": "Who may use the service.",
        "keys": "The API keys they use it with.",
    },
}


@cache
def load_command_summaries() -> dict[str, dict[str, str]]:
    """Module -> command -> its line in the help, of the core and of all features."""
    features = [feature for feature in load_enabled_features() if feature.commands_module is not None]
    of_features = {str(feature.commands_module): dict(feature.commands) for feature in features}
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
        summaries = {name: text for found in load_command_summaries().values() for name, text in found.items()}
        for plugin in entry_points(group=PLUGIN_ENTRY_POINT_GROUP):
            summaries[plugin.name] = plugin.dist.metadata["Summary"] if plugin.dist else ""
        listed = [TyperCommand(name=name, help=text) for name, text in summaries.items()]
        TyperGroup(
            name=self.name,
            commands=listed,
            help=self.help,
            params=self.params,
            rich_markup_mode=self.rich_markup_mode,
        ).format_help(ctx, formatter)


class LazyCommands(Mapping[str, Any]):
    """Commands by name. A lookup imports the module of that command."""

    def __init__(self) -> None:
        self._plugins = {plugin.name: plugin for plugin in entry_points(group=PLUGIN_ENTRY_POINT_GROUP)}

    def __getitem__(self, name: str) -> Any:
        modules = _map_commands_to_modules()
        if name in modules:
            return get_group(import_module(modules[name]).commands).commands[name]
        parent = typer.Typer()
        parent.add_typer(self._plugins[name].load(), name=name)
        return get_group(parent).commands[name]

    def __iter__(self) -> Iterator[str]:
        yield from _map_commands_to_modules()
        yield from self._plugins

    def __len__(self) -> int:
        return len(_map_commands_to_modules()) + len(self._plugins)
