"""The commands `tidemill bench`."""

import json
from dataclasses import replace
from pathlib import Path
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
from tidemill_bench import load as load_run
from tidemill_bench import neighbour as neighbour_run
from tidemill_bench import plans as dispatch_plan
from tidemill_bench import plans as export_plan
from tidemill_bench import plans as import_plan
from tidemill_bench import plans as service_plan
from tidemill_bench.attacks import ATTACKS
from tidemill_bench.items import describe_noise, run_benchmark
from tidemill_bench.load_plots import write_plots
from tidemill_bench.plans import FULL_LOAD_PLAN, MILLION, ItemsBenchPlan, LoadBenchPlan, NeighbourBenchPlan
from tidemill_bench.quotas import run_quota_probes
from tidemill_bench.results import print_attack_table, print_quota_table, print_result_table
from tidemill_bench.walk import run_walk

P = TypeVar("P")
commands = typer.Typer(no_args_is_help=True)


@commands.callback()
def bench() -> None:
    """Measure this installation."""


@commands.command()
def items(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
    rows: Annotated[int | None, typer.Option(min=1, help="Items per job. Default: 100,000")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds; figures are medians")] = 3,
    starts: Annotated[int, typer.Option(min=1, help="Number of one-item jobs that measure the start latency")] = 40,
    full: Annotated[
        bool, typer.Option("--full", help="Measure everything with 100,000 and with 1,000,000 items")
    ] = False,
) -> None:
    """Measure how fast no-op items are stored, started and processed, compared with a bare COPY of the same rows."""
    if full and rows is not None:
        raise InvalidInput("--full sets the number of items. Remove --rows")
    small = rows or 100_000
    plan = ItemsBenchPlan(small, MILLION if full else 3 * small, rounds, starts, full=full)
    result = run_benchmark(plan)
    _print_result(result, describe_noise(result["figures"]), as_json=as_json)


@commands.command()
def walk(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
    items: Annotated[int | None, typer.Option(min=1_000, help="Items of the large job. Default: 1,000,000")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="Duration of the load test. Default: 20")] = None,
    upload_mb: Annotated[int | None, typer.Option(min=1, help="Size of the uploaded file. Default: 400")] = None,
    full: Annotated[bool, typer.Option("--full", help="5,000,000 items, 60 s of load, an upload of 1 GB")] = False,
) -> None:
    """Measure pages of a large job, with one client and with many, and the upload of a large file."""
    options = {"items": items, "seconds": seconds, "upload_mb": upload_mb}
    plan = _override_plan(service_plan.FULL_API_PLAN if full else service_plan.ApiBenchPlan(), options)
    result = service_run.run_benchmark(plan)
    _print_result(result, service_report.describe_noise(result["figures"]), as_json=as_json)


@commands.command("import")
def import_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
    users: Annotated[int | None, typer.Option(min=1_000, help="Rows of the CSV file. Default: 1,000,000")] = None,
    articles: Annotated[int | None, typer.Option(min=1_000, help="Rows of the NDJSON file. Default: 300,000")] = None,
    pairs: Annotated[
        int | None, typer.Option(min=1_000, help="Rows of the all-good and of the all-bad file. Default: 200,000")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds; figures are medians")] = None,
    full: Annotated[bool, typer.Option("--full", help="Use 10,000,000 users")] = False,
) -> None:
    """Measure imports of files into tables, compared with a bare COPY of their good rows."""
    options = {"users": users, "articles": articles, "pairs": pairs, "rounds": rounds}
    plan = _override_plan(import_plan.FULL_IMPORT_PLAN if full else import_plan.ImportBenchPlan(), options)
    result = import_run.run_benchmark(plan)
    _print_result(result, import_report.describe_noise(result["figures"]), as_json=as_json)


@commands.command("export")
def export_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
    users: Annotated[int | None, typer.Option(min=1_000, help="Rows of each file. Default: 1,000,000")] = None,
    book_rows: Annotated[int | None, typer.Option(min=1_000, help="Rows of a workbook. Default: 200,000")] = None,
    inputs: Annotated[int | None, typer.Option(min=1, help="Files written to an object store. Default: 10,000")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds; figures are medians")] = None,
    full: Annotated[bool, typer.Option("--full", help="Use 10,000,000 users")] = False,
) -> None:
    """Measure exports of a table, compared with psql's COPY of the same query, and distributions of small files."""
    options = {"users": users, "book_rows": book_rows, "inputs": inputs, "rounds": rounds}
    plan = _override_plan(export_plan.FULL_EXPORT_PLAN if full else export_plan.ExportBenchPlan(), options)
    result = export_run.run_benchmark(plan)
    _print_result(result, export_report.describe_noise(result["figures"]), as_json=as_json)


@commands.command("dispatch")
def dispatch_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Jobs per round. Default: 25")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Items per job. Default: 4,000")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds; figures are medians")] = None,
    starts: Annotated[
        int | None, typer.Option(min=1, help="Number of one-item jobs that measure the wake-up. Default: 40")
    ] = None,
    hints: Annotated[int | None, typer.Option(min=1, help="Hints that the relay sends. Default: 10,000")] = None,
    redis: Annotated[
        str | None, typer.Option(metavar="URL", help="Use this Redis server instead of a temporary one")
    ] = None,
    rabbitmq: Annotated[
        str | None, typer.Option(metavar="URL", help="Use this RabbitMQ server instead of a temporary one")
    ] = None,
) -> None:
    """Measure wake-ups of workers and no-op items, with the database alone and with each installed broker."""
    options = {"jobs": jobs, "rows": rows, "rounds": rounds, "starts": starts, "hints": hints}
    plan = _override_plan(dispatch_plan.DispatchBenchPlan(), options | {"redis": redis, "rabbitmq": rabbitmq})
    result = dispatch_run.run_benchmark(plan)
    _print_result(result, dispatch_report.describe_noise(result["figures"]), as_json=as_json)


@commands.command("neighbour")
def neighbour_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
    rows: Annotated[int | None, typer.Option(min=1_000, help="Rows of the imported file. Default: 100,000")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Imports before and during the attacks. Default: 5")] = None,
    attack: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only this attack. Repeat the option for several")
    ] = None,
) -> None:
    """Measure the import of one user, alone and while another user attacks the service in every known way."""
    unknown = sorted(set(attack or ()) - set(ATTACKS))
    if unknown:
        raise InvalidInput(f'Unknown attack "{unknown[0]}". Known attacks: {", ".join(ATTACKS)}.')
    plan = _override_plan(NeighbourBenchPlan(attacks=tuple(attack or ())), {"rows": rows, "rounds": rounds})
    result = neighbour_run.run_benchmark(plan)
    _print_result(result, None, as_json=as_json)
    if not as_json:
        print_attack_table(result["attacks"])


@commands.command("quotas")
def quotas_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
) -> None:
    """Reach every quota of a user, print the responses, and check that no accepted job is lost."""
    result = run_quota_probes()
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        print_quota_table(result)


@commands.command("load")
def load_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only this measurement. Repeat the option for several")
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write plots of the large job and of the soak into this folder"),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="10,000,000 items, a snapshot of 10 minutes, a soak of 30 minutes")
    ] = False,
) -> None:
    """Measure large jobs, many workers and clients, a held snapshot, fairness between users, and a soak."""
    unknown = sorted(set(only or ()) - set(load_run.MEASUREMENTS))
    if unknown:
        known = ", ".join(load_run.MEASUREMENTS)
        raise InvalidInput(f'Unknown measurement "{unknown[0]}". Known measurements: {known}.')
    result = load_run.run_benchmark(FULL_LOAD_PLAN if full else LoadBenchPlan(), only or ())
    if plots is not None:
        write_plots(result["series"], plots)
    _print_result(result, None, as_json=as_json)


def _override_plan(plan: P, overrides: dict[str, Any]) -> P:
    """Return the plan with the options that are set."""
    return replace(plan, **{name: value for name, value in overrides.items() if value is not None})  # type: ignore[type-var]


def _print_result(result: dict[str, Any], warning: str | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        print_result_table(result, warning)
