"""The commands that fix failed rows of an import: from a file, or with one rule for all rows of a cause."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.core.errors import InvalidInput
from tidemill.core.job import Job
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.imports.cli import (
    FallbackProcessesOption,
    NormalizerMillOption,
    RemainingErrorsOption,
    check_is_import,
    follow_import_and_exit,
)
from tidemill.imports.cli_views import (
    print_error_samples,
    print_repair_preview,
)
from tidemill.imports.fixed_rows import FixedRowsFile, fix_rows_from_file
from tidemill.imports.import_submission import ImportFile
from tidemill.imports.repair_rules import Drop, parse_repair_rule
from tidemill.imports.repairs import RepairRequest, preview_repair, start_repair
from tidemill.imports.use_cases import make_import_use_cases
from tidemill.jobs import queries
from tidemill.jobs.cli import JobArgument
from tidemill.jobs.staged_files import make_staged_files
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import (
    BUILTIN_MILL_REFERENCE,
    run_with_runtime,
)
from tidemill.terminal.console import console, format_count, print_json_lines

commands = typer.Typer()


@commands.command("fix")
def fix_command(
    job: JobArgument,
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="The file that --errors wrote, with fixed rows")
    ],
    errors_to: RemainingErrorsOption = None,
    processes: FallbackProcessesOption = 2,
    app: NormalizerMillOption = BUILTIN_MILL_REFERENCE,
) -> None:
    """Send back fixed rows of an import, and retry only these rows."""

    async def action(runtime: Runtime) -> Job:
        fixed_job = await queries.get_job_by_reference(runtime.db, job)
        retry = f"To retry its failed items, run: tidemill retry {fixed_job.key}"
        check_is_import(fixed_job, f"Only imports have rows to fix. {retry}")
        staged = ImportFile(await runtime.get(make_staged_files).stage_file(file), file.name)
        operation = await fix_rows_from_file(runtime, fixed_job, FixedRowsFile(staged, by=LOCAL_USER_ID))
        console.print(f"Requeued {format_count(operation.items, 'row')}", highlight=False)
        return fixed_job

    follow_import_and_exit(run_with_runtime(action, app=app), errors_to=errors_to, processes=processes, app=app)


@commands.command("repair")
def repair_command(
    job: JobArgument,
    cause: Annotated[
        str, typer.Option(help="Error code of the rows, such as email.pattern (default: list the errors)")
    ] = "",
    column: Annotated[
        str | None, typer.Option(help="Column of the file that the rule reads (default: the column of the error)")
    ] = None,
    find: Annotated[
        str | None, typer.Option("--replace", metavar="TEXT", help="Text to replace with the text of --with")
    ] = None,
    replacement: Annotated[
        str | None, typer.Option("--with", metavar="TEXT", help="The new text (default: empty)")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Replace only values that are exactly this text")] = False,
    translate: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Replace the value OLD with NEW; OLD= empties the value; can be repeated"),
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="SEPARATOR", help="Split the value at the first separator; requires --into")
    ] = None,
    into: Annotated[
        str, typer.Option(metavar="COLUMN,COLUMN", help="The columns of the two parts of a split value")
    ] = "",
    format_: Annotated[
        str | None,
        typer.Option("--format", help="Read values in this format, such as DD.MM.YYYY or decimal-comma"),
    ] = None,
    default: Annotated[str | None, typer.Option(help="Set this value where the value is empty or invalid")] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Dismiss the rows instead of fixing them")] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what the rule does with the first rows; change nothing")
    ] = False,
    errors_to: RemainingErrorsOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list of errors as one JSON object per line")
    ] = False,
    processes: FallbackProcessesOption = 2,
    app: NormalizerMillOption = BUILTIN_MILL_REFERENCE,
) -> None:
    """Fix all rows of an import that failed for one cause, with one rule, and retry them."""
    if (find is None and (replacement is not None or whole)) or (split is None and into):
        raise InvalidInput("--with and --whole require --replace, and --into requires --split")
    given: list[dict[str, Any] | None] = [
        None if find is None else {"type": "replace", "find": find, "replacement": replacement or "", "whole": whole},
        {"type": "translate", "values": dict(map(_parse_translation, translate))} if translate else None,
        None if split is None else {"type": "split", "separator": split, "into": into.split(",")},
        None if format_ is None else {"type": "format", "format": format_},
        None if default is None else {"type": "default", "value": default},
        {"type": "drop"} if drop else None,
    ]
    rules = [parse_repair_rule(one) for one in given if one is not None]
    if len(rules) != bool(cause):
        raise InvalidInput(
            "Set --cause and one of --replace, --translate, --split, --format, --default and --drop. "
            "Without options, the command lists the errors."
        )
    if as_json and rules:
        raise InvalidInput("--json prints the list of errors. Omit --cause and the rule.")
    if not rules:
        run_with_runtime(lambda runtime: _print_causes(runtime, job, as_json=as_json), app=app)
        return
    request = RepairRequest(cause, rules[0], column)
    repaired = run_with_runtime(lambda runtime: _preview_or_repair(runtime, job, request, preview), app=app)
    if repaired is not None:
        follow_import_and_exit(repaired, errors_to=errors_to, processes=processes, app=app)


async def _get_import(runtime: Runtime, name: str) -> Job:
    job = await queries.get_job_by_reference(runtime.db, name)
    check_is_import(job, f"To retry its failed items, run: tidemill retry {job.key}")
    return job


async def _preview_or_repair(runtime: Runtime, name: str, request: RepairRequest, is_preview: bool) -> Job | None:
    """Repair rows, or print a preview. Return the job if its rows are retried."""
    job = await _get_import(runtime, name)
    if is_preview:
        print_repair_preview(await preview_repair(runtime, job, request))
        return None
    operation = await start_repair(runtime, job, request, by=LOCAL_USER_ID)
    rest = f". The rule did not change {format_count(operation.unchanged, 'row')}" if operation.unchanged else ""
    drops = isinstance(request.rule, Drop)
    done = "Dismissed" if drops else "Requeued"
    console.print(f"{done} {format_count(operation.items, 'row')}{rest}", highlight=False)
    return None if drops else job


async def _print_causes(runtime: Runtime, name: str, *, as_json: bool) -> None:
    job = await _get_import(runtime, name)
    report = await runtime.get(make_import_use_cases).read_report(job)
    if as_json:
        print_json_lines({"rows": rows, **error} for rows, error in report.error_samples)
    elif report.error_samples:
        print_error_samples(report.error_samples)
    else:
        console.print(f"{job.key} has no failed rows", highlight=False)


def _parse_translation(text: str) -> tuple[str, str | None]:
    old, separator, new = text.partition("=")
    if not separator:
        raise InvalidInput(f'Invalid value "{text}" for --translate. Use OLD=NEW.')
    return old, new or None
