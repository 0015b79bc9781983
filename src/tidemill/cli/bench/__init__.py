"""Benchmarks."""

import json
from typing import Annotated

import typer

from tidemill.cli.bench.plan import MILLION, Plan
from tidemill.cli.bench.report import show
from tidemill.cli.bench.run import run
from tidemill.domain.errors import InvalidInput

commands = typer.Typer(no_args_is_help=True)


@commands.callback()
def bench() -> None:
    """Measure this installation."""


@commands.command()
def items(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table")] = False,
    rows: Annotated[int | None, typer.Option(min=1, help="Items per job; 100,000 if not said")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of bare and engine; medians are shown")] = 3,
    starts: Annotated[int, typer.Option(min=1, help="Jobs of one item, for the start latency")] = 40,
    full: Annotated[bool, typer.Option("--full", help="Everything at 100,000 and at 1,000,000 items")] = False,
) -> None:
    """Store, process and start no-op items, in turns with bare COPY of the same rows."""
    if full and rows is not None:
        raise InvalidInput("--full has sizes of its own: leave --rows out")
    small = rows or 100_000
    plan = Plan(small, MILLION if full else 3 * small, rounds, starts, full=full)
    result = run(plan)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        show(result)
