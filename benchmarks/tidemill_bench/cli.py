"""Benchmarks."""

import json
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import typer

from tidemill.core.errors import InvalidInput
from tidemill_bench import api as service_report
from tidemill_bench import api as service_run
from tidemill_bench import dispatch as dispatch_report
from tidemill_bench import dispatch as dispatch_run
from tidemill_bench import exports as export_report
from tidemill_bench import exports as export_run
from tidemill_bench import imports as import_report
from tidemill_bench import imports as import_run
from tidemill_bench import plans as dispatch_plan
from tidemill_bench import plans as export_plan
from tidemill_bench import plans as import_plan
from tidemill_bench import plans as service_plan
from tidemill_bench.items import describe_noise, run_benchmark
from tidemill_bench.plans import MILLION, ItemsBenchPlan
from tidemill_bench.results import print_result_table
from tidemill_bench.walk import run_walk

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
    plan = ItemsBenchPlan(small, MILLION if full else 3 * small, rounds, starts, full=full)
    result = run_benchmark(plan)
    _print_result(result, describe_noise(result["figures"]), as_json=as_json)


@commands.command()
def walk(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table")] = False,
) -> None:
    """Count the files, functions and calls between packages that one item passes through."""
    report = run_walk()
    if as_json:
        typer.echo(json.dumps(report))
        return
    for path, names in report["functions_by_file"].items():
        typer.echo(f"{path}: {', '.join(names)}")
    for packages, count in report["crossings_by_packages"].items():
        typer.echo(f"{count:5} {packages}")
    typer.echo(f"files {report['files']} functions {report['functions']} crossings {report['crossings']}")


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
    plan = _override_plan(service_plan.FULL_API_PLAN if full else service_plan.ApiBenchPlan(), said)
    result = service_run.run_benchmark(plan)
    _print_result(result, service_report.describe_noise(result["figures"]), as_json=as_json)


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
    plan = _override_plan(import_plan.FULL_IMPORT_PLAN if full else import_plan.ImportBenchPlan(), said)
    result = import_run.run_benchmark(plan)
    _print_result(result, import_report.describe_noise(result["figures"]), as_json=as_json)


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
    plan = _override_plan(export_plan.FULL_EXPORT_PLAN if full else export_plan.ExportBenchPlan(), said)
    result = export_run.run_benchmark(plan)
    _print_result(result, export_report.describe_noise(result["figures"]), as_json=as_json)


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
    plan = _override_plan(dispatch_plan.DispatchBenchPlan(), said | {"redis": redis, "rabbitmq": rabbitmq})
    result = dispatch_run.run_benchmark(plan)
    _print_result(result, dispatch_report.describe_noise(result["figures"]), as_json=as_json)


def _override_plan(plan: P, overrides: dict[str, Any]) -> P:
    """With what was said instead of what is usual."""
    return replace(plan, **{name: value for name, value in overrides.items() if value is not None})  # type: ignore[type-var]


def _print_result(result: dict[str, Any], warning: str | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        print_result_table(result, warning)
