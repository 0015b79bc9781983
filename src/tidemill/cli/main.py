"""tidemill: the command."""

import sys

import typer
from rich.markup import escape

from tidemill.cli import (
    admin,
    bench,
    demo,
    distributions,
    exports,
    identity,
    import_again,
    imports,
    jobs,
    limiters,
    matching,
    quarantine,
    run,
    sources,
)
from tidemill.cli.views import errors
from tidemill.domain.errors import TOLD_MAX, InvalidRows, TidemillError

app = typer.Typer(
    name="tidemill",
    help="A persist-first bulk job engine on PostgreSQL: every row is stored first, then processed, and never lost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
tables, work = (imports, import_again, exports, distributions), (sources, matching, jobs, limiters)
for group in (run, *tables, *work, admin, quarantine, demo):
    for info in group.commands.registered_commands:
        app.registered_commands.append(info)
app.add_typer(identity.users, name="users", help="Who may use the service.")
app.add_typer(identity.keys, name="keys", help="The API keys they use it with.")
app.add_typer(bench.commands, name="bench", help="Measure this installation: the engine, and the service.")


def main() -> None:
    """Run a command; what Tidemill raises on purpose is told to the user, and the exit code is 2."""
    try:
        app()
    except TidemillError as error:
        first, *others = _lines(error)
        errors.print(f"[red]error:[/] {escape(first)}", highlight=False, soft_wrap=True)
        for line in others:
            errors.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
        sys.exit(2)


def _lines(error: TidemillError) -> list[str]:
    """One, but for rows of a file: each is mended by itself."""
    if not isinstance(error, InvalidRows) or error.count == 1:
        return [str(error)]
    told, more = error.problems[:TOLD_MAX], error.count - TOLD_MAX
    return ["nothing was changed", *told, *([f"and {more:,} more"] if more > 0 else [])]
