"""Benchmarks."""

import json
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import typer

from tidemill.cli.bench.dispatch import plan as dispatch_plan
from tidemill.cli.bench.dispatch import report as dispatch_report
from tidemill.cli.bench.dispatch import run as dispatch_run
from tidemill.cli.bench.exports import plan as export_plan
from tidemill.cli.bench.exports import report as export_report
from tidemill.cli.bench.exports import run as export_run
from tidemill.cli.bench.imports import plan as import_plan
from tidemill.cli.bench.imports import report as import_report
from tidemill.cli.bench.imports import run as import_run
from tidemill.cli.bench.plan import MILLION, Plan
from tidemill.cli.bench.report import warning
from tidemill.cli.bench.run import run
from tidemill.cli.bench.service import plan as service_plan
from tidemill.cli.bench.service import report as service_report
from tidemill.cli.bench.service import run as service_run
from tidemill.cli.bench.targets import show
from tidemill.domain.errors import InvalidInput

P = TypeVar("P")
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
    _print(result, warning(result["figures"]), as_json=as_json)


@commands.command()
def api(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table")] = False,
    items: Annotated[int | None, typer.Option(min=1_000, help="Items of the big job; 1,000,000 if not said")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="How long the crowd stays; 20 if not said")] = None,
    upload_mb: Annotated[int | None, typer.Option(min=1, help="Size of the uploaded file; 400 if not said")] = None,
    full: Annotated[bool, typer.Option("--full", help="5,000,000 items, a minute of crowd, an upload of 1 GB")] = False,
) -> None:
    """Ask the service for pages of a big job, alone and in a crowd, and send it a large file."""
    said = {"items": items, "seconds": seconds, "upload_mb": upload_mb}
    plan = _planned(service_plan.FULL if full else service_plan.Plan(), said)
    result = service_run.run(plan)
    _print(result, service_report.warning(result["figures"]), as_json=as_json)


@commands.command("import")
def import_command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table")] = False,
    users: Annotated[int | None, typer.Option(min=1_000, help="Rows of the CSV file; 1,000,000 if not said")] = None,
    articles: Annotated[int | None, typer.Option(min=1_000, help="Rows of the NDJSON file; 300,000")] = None,
    pairs: Annotated[int | None, typer.Option(min=1_000, help="Rows that are all good, or all bad; 200,000")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Turns; medians are shown")] = None,
    full: Annotated[bool, typer.Option("--full", help="10,000,000 users")] = False,
) -> None:
    """Import files into tables, in turns with bare COPY of their good rows."""
    said = {"users": users, "articles": articles, "pairs": pairs, "rounds": rounds}
    plan = _planned(import_plan.FULL if full else import_plan.Plan(), said)
    result = import_run.run(plan)
    _print(result, import_report.warning(result["figures"]), as_json=as_json)


@commands.command("export")
def export_command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table")] = False,
    users: Annotated[int | None, typer.Option(min=1_000, help="Rows of every file; 1,000,000 if not said")] = None,
    book_rows: Annotated[int | None, typer.Option(min=1_000, help="Rows of a workbook; 200,000")] = None,
    inputs: Annotated[int | None, typer.Option(min=1, help="Files to an object store; 10,000")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Turns; medians are shown")] = None,
    full: Annotated[bool, typer.Option("--full", help="10,000,000 users")] = False,
) -> None:
    """Export a table as streams and as files, in turns with psql's COPY of the same query; and many small files."""
    said = {"users": users, "book_rows": book_rows, "inputs": inputs, "rounds": rounds}
    plan = _planned(export_plan.FULL if full else export_plan.Plan(), said)
    result = export_run.run(plan)
    _print(result, export_report.warning(result["figures"]), as_json=as_json)


@commands.command("dispatch")
def dispatch_command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Jobs of a turn; 25 if not said")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Items per job; 4,000 if not said")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Turns; medians are shown")] = None,
    starts: Annotated[int | None, typer.Option(min=1, help="Jobs of one item, for the wake-up; 40")] = None,
    hints: Annotated[int | None, typer.Option(min=1, help="Hints for the relay; 10,000")] = None,
    redis: Annotated[str | None, typer.Option(metavar="URL", help="A Redis that runs, instead of our own")] = None,
    rabbitmq: Annotated[str | None, typer.Option(metavar="URL", help="A RabbitMQ that runs, instead of ours")] = None,
) -> None:
    """Process no-op items and wake workers, by the database alone and by each broker that is there, in turns."""
    said = {"jobs": jobs, "rows": rows, "rounds": rounds, "starts": starts, "hints": hints}
    plan = _planned(dispatch_plan.Plan(), said | {"redis": redis, "rabbitmq": rabbitmq})
    result = dispatch_run.run(plan)
    _print(result, dispatch_report.warning(result["figures"]), as_json=as_json)


def _planned(plan: P, said: dict[str, Any]) -> P:
    """With what was said instead of what is usual."""
    return replace(plan, **{name: value for name, value in said.items() if value is not None})  # type: ignore[type-var]


def _print(result: dict[str, Any], warning: str | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        show(result, warning)
