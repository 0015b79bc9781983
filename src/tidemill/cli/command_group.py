"""The commands of `tidemill`: which module defines each, and its line in the help.

Listing the commands imports none of these modules; running a command imports its own only.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

PLUGIN_ENTRY_POINT_GROUP = "tidemill.commands"
SUMMARIES_BY_MODULE = {
    "tidemill.cli.run": {
        "worker": "Run imports, exports and the handlers of a mill, if one is named, until stopped with Ctrl-C or "
        "SIGTERM.",
        "serve": "Run the HTTP API until stopped. With a mill, kickoff runs its handlers for the length of a request.",
        "up": "Everything on this machine, until stopped: the database, brought up to date, the HTTP API and a worker.",
    },
    "tidemill.imports.cli": {
        "import": "Load a file into a table of your database: every row is stored first, and each bad one is told.",
        "fix": "Send mended rows of an import back: they are stored as corrections, and only they run again.",
        "promote": "Do what an import with --validate-only has only tried: the same file, with the corrections made "
        "since.",
    },
    "tidemill.exports.cli": {
        "export": "Write rows of a table of your database into a file, at the speed of COPY: all as they are at one "
        "moment.",
    },
    "tidemill.distributions.cli": {
        "distribute": "Make a file for each input, or use the one that was made before; the exit code is 0 only if all "
        "are there.",
    },
    "tidemill.watches.cli": {
        "sources": "The watches that are declared: what they watch, their last scans, their files, and what is wrong.",
        "scan": "Look now at what a watch watches, whatever its schedule; exit code 1 if something is wrong with it.",
    },
    "tidemill.enrichment.cli": {
        "match": "Match the rows of a file against a reconciliation service; the exit code is 0 only if nothing "
        "failed.",
    },
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
    "tidemill.cli.identity": {
        "users": "Who may use the service.",
        "keys": "The API keys they use it with.",
    },
}
MODULE_BY_COMMAND = {name: module for module, summaries in SUMMARIES_BY_MODULE.items() for name in summaries}


class CommandGroup(TyperGroup):
    """The commands of this package and of installed plugins."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = cast("Any", LazyCommands())

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        summaries = {name: text for found in SUMMARIES_BY_MODULE.values() for name, text in found.items()}
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
        if name in MODULE_BY_COMMAND:
            return get_group(import_module(MODULE_BY_COMMAND[name]).commands).commands[name]
        parent = typer.Typer()
        parent.add_typer(self._plugins[name].load(), name=name)
        return get_group(parent).commands[name]

    def __iter__(self) -> Iterator[str]:
        yield from MODULE_BY_COMMAND
        yield from self._plugins

    def __len__(self) -> int:
        return len(MODULE_BY_COMMAND) + len(self._plugins)
