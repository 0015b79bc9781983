"""The commands that import a file and promote a dry run, and follow the import until it is closed."""

import asyncio
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import UUID

import typer
from rich.markup import escape

from tidemill.core.errors import AmbiguousFormats, InvalidColumns, InvalidInput
from tidemill.core.job import Job
from tidemill.core.kinds import DISTRIBUTION_KIND, ENRICH_KIND, EXPORT_KIND, IMPORT_KIND, MATCH_KIND
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.core.status import JobStatus
from tidemill.imports.cli_views import (
    format_choices,
    print_error_samples,
    print_import_effects,
    print_layout,
    print_preview,
    print_remembered,
)
from tidemill.imports.dry_run_promotion import promote_dry_run
from tidemill.imports.failed_rows import ERROR_FILE_FORMATS, open_error_file
from tidemill.imports.import_plan import DuplicateRule, ImportRequest, ImportWriteMode, Translations, parse_lookups
from tidemill.imports.import_preview import (
    PREVIEW_ROWS_MAX,
    open_runtime_for_local_preview,
    preview_import_and_delete_file,
)
from tidemill.imports.import_submission import ImportFile, ImportOptions, ImportSource, is_remote_url
from tidemill.imports.remembered_mappings import may_read_mappings
from tidemill.imports.use_cases import make_import_use_cases
from tidemill.jobs import queries
from tidemill.jobs.cli import JobArgument, WorkerCheck, show_progress_until_closed
from tidemill.jobs.staged_files import FileReference, StagedFiles, make_staged_files
from tidemill.runtime import Runtime
from tidemill.terminal import streams
from tidemill.terminal.command_host import (
    BUILTIN_MILL_REFERENCE,
    MILL_DEFAULT_HELP,
    make_command_host,
    resolve_mill,
    run_with_runtime,
    silence_logs_unless_configured,
)
from tidemill.terminal.command_options import FORMAT_HELP, PolicyOption, add_layout_options, parse_policy_option
from tidemill.terminal.console import (
    console,
    format_job_counts,
    format_job_status,
)
from tidemill.terminal.streams import check_output_path, open_atomic_output

commands = typer.Typer()
PREVIEW_ROWS_DEFAULT = 10
MAP_OPTION_HINT = "Use --map COLUMN=FIELD to map a column, or --map COLUMN= to ignore it."
_NAMES_OF_KINDS = {
    EXPORT_KIND: "an export",
    DISTRIBUTION_KIND: "a distribution",
    MATCH_KIND: "a match",
    ENRICH_KIND: "an enrichment",
}


FallbackProcessesOption = Annotated[
    int, typer.Option("--processes", "-p", min=1, max=64, help="Worker processes to start if none is running")
]
NormalizerMillOption = Annotated[
    str,
    typer.Option(
        callback=resolve_mill,
        show_default=MILL_DEFAULT_HELP,
        help="MODULE:NAME of a mill that declares normalizers",
    ),
]
RemainingErrorsOption = Annotated[
    Path | None, typer.Option("--errors", help="Write the rows that still fail to this file")
]


@dataclass(frozen=True, slots=True)
class ImportArguments:
    """The parsed command line."""

    file: str
    options: ImportOptions
    app: str = BUILTIN_MILL_REFERENCE
    uses_memory: bool = True


@commands.command("import")
@add_layout_options
def import_command(
    file: Annotated[
        str,
        typer.Argument(help="CSV, TSV, NDJSON, JSON, XLSX or Parquet file, compressed or not; a URL; or - for stdin"),
    ],
    layout: dict[str, Any],
    into: Annotated[
        str, typer.Option(help="Target table, such as public.users, or a resource declared in tidemill.toml")
    ],
    format_: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="[FIELD=]FORMAT",
            help="Format of a field's values, such as price=decimal-comma or born=DD.MM.YYYY; can be repeated. "
            f"Without a field, the format of the file: {FORMAT_HELP}",
        ),
    ] = None,
    key: Annotated[
        str, typer.Option(help="Comma-separated fields that identify a row (default: the key of the table or resource)")
    ] = "",
    mode: Annotated[str, typer.Option(help="insert adds rows; upsert also updates rows whose key exists")] = "insert",
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Dry run: check all rows, write none")] = False,
    duplicates: Annotated[
        str,
        typer.Option(
            help="Rows with the same key: first or last imports only that row and skips the others; error imports the "
            "first and fails the others"
        ),
    ] = "error",
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="COLUMN=FIELD", help="Map a column to a field; COLUMN= ignores the column; can be repeated"
        ),
    ] = None,
    translate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD:TEXT=NEW",
            help="Import NEW where the file has TEXT, such as country:Germany=DE; can be repeated",
        ),
    ] = None,
    lookup: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=COLUMN[,COLUMN]",
            help="Find the row that a field refers to by other columns of its table than the key, such as "
            "team_id=name; FIELD= uses the keys in the file; can be repeated",
        ),
    ] = None,
    create_missing: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Create the rows that the lookup of a field does not find; can be repeated"),
    ] = None,
    no_memory: Annotated[
        bool, typer.Option("--no-memory", help="Ignore the mappings of earlier imports with the same columns")
    ] = False,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="Remove the apostrophes that an export with --spreadsheet-safe added"),
    ] = False,
    keep_empty: Annotated[
        bool, typer.Option("--keep-empty", help='Import empty text ("" in a CSV) as text, not as a missing value')
    ] = False,
    assume: Annotated[
        bool, typer.Option("--assume", help="Use the more likely format if a column fits two formats")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Set a field of every row to a value; can be repeated"),
    ] = None,
    compute: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=EXPRESSION",
            help="Compute a field from columns, such as \"name=concat(first, ' ', last)\"; can be repeated",
        ),
    ] = None,
    skip_rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Skip rows, such as \"status = 'deleted'\"; can be repeated",
        ),
    ] = None,
    undo: Annotated[
        bool | None,
        typer.Option(
            "--undo/--no-undo",
            help="Keep the data to undo this import (default: the setting of the resource)",
            show_default=False,
        ),
    ] = None,
    policy: PolicyOption = "continue",
    preview: Annotated[
        bool, typer.Option("--preview", help="Show the layout, the column mapping and the first rows; import nothing")
    ] = False,
    preview_rows: Annotated[
        int | None,
        typer.Option(min=1, max=PREVIEW_ROWS_MAX, help=f"Number of rows to preview (default: {PREVIEW_ROWS_DEFAULT})"),
    ] = None,
    errors_to: Annotated[
        Path | None,
        typer.Option(
            "--errors",
            help="Write the failed rows to this .csv, .xlsx or .ndjson file, so that you can fix and resend them",
        ),
    ] = None,
    allow_errors: Annotated[
        bool, typer.Option("--allow-errors", help="Exit with status 0 even if rows failed")
    ] = False,
    processes: Annotated[
        int, typer.Option("--processes", "-p", min=1, max=64, help="Worker processes to start if none is running")
    ] = 2,
    app: Annotated[
        str,
        typer.Option(
            callback=resolve_mill,
            show_default=MILL_DEFAULT_HELP,
            help="MODULE:NAME of a mill that declares resources and normalizers",
        ),
    ] = BUILTIN_MILL_REFERENCE,
) -> None:
    """Import a file into a table of your database, and report every invalid row."""
    request = ImportRequest(
        mode=cast("ImportWriteMode", _check_choice("--mode", mode, ("insert", "upsert"))),
        validate_only=validate_only,
        duplicates=cast("DuplicateRule", _check_choice("--duplicates", duplicates, ("first", "last", "error"))),
        translations=_parse_translations(translate or []),
        mapping=dict(_parse_assignment("--map", "COLUMN=FIELD", text) for text in map_ or []),
        key=tuple(name.strip() for name in key.split(",") if name.strip()),
        spreadsheet_safe=spreadsheet_safe,
        keep_empty=keep_empty,
        formats=dict(_parse_assignment("--format", "FIELD=FORMAT", text) for text in format_ or [] if "=" in text),
        assume=assume,
        undo=undo,
        constants=dict(_parse_first_assignment("--set", "FIELD=VALUE", text) for text in set_ or []),
        computed=dict(_parse_first_assignment("--compute", "FIELD=EXPRESSION", text) for text in compute or []),
        skip=tuple(skip_rows or []),
        lookups=_parse_lookups(lookup or []),
        create_missing=create_missing or [],
    )
    file_formats = [text for text in format_ or [] if "=" not in text]
    if file_formats:
        layout["format"] = file_formats[-1]
    options = ImportOptions(
        resource=into,
        request=request,
        layout=layout,
        policy=parse_policy_option(policy),
    )
    arguments = ImportArguments(file, options, app, uses_memory=not no_memory)
    silence_logs_unless_configured()
    if preview or preview_rows is not None:
        rows = preview_rows or PREVIEW_ROWS_DEFAULT
        run_with_runtime(lambda runtime: _preview_import(runtime, arguments, rows), app=app, check=False)
        return
    job = run_import(arguments, errors_to=errors_to, processes=processes)
    _exit_unless_completed(job, allow_errors=allow_errors)


def run_import(arguments: ImportArguments, *, errors_to: Path | None, processes: int) -> Job:
    """Import a file, show the progress and print the result. Return the closed job."""
    check_output_path(errors_to)

    async def action(runtime: Runtime) -> Job:
        job_id = await _submit_import(runtime, arguments)
        return await _follow_import_with_worker(runtime, job_id, errors_to, processes, arguments.app)

    return run_with_runtime(action, app=arguments.app, migrate=True)


def follow_import_and_exit(job: Job, *, errors_to: Path | None, processes: int, app: str) -> None:
    """Follow an existing job until it is closed, and exit with its status."""
    check_output_path(errors_to)
    silence_logs_unless_configured()
    _exit_unless_completed(
        run_with_runtime(
            lambda runtime: _follow_import_with_worker(runtime, job.id, errors_to, processes, app), app=app
        ),
        allow_errors=False,
    )


def _exit_unless_completed(job: Job, *, allow_errors: bool) -> None:
    """Exit with status 1 unless every row succeeded, or rows failed and errors are allowed."""
    if job.status is not JobStatus.COMPLETED:
        is_fine = allow_errors and job.status is JobStatus.COMPLETED_WITH_ERRORS
        raise typer.Exit(0 if is_fine else 1)


async def _follow_import_with_worker(
    runtime: Runtime, job_id: UUID, errors_to: Path | None, processes: int, app: str
) -> Job:
    """Wait until the job is closed; start a worker if none is running."""
    job = await queries.get_job_by_reference(runtime.db, str(job_id))
    try:
        async with make_command_host().ensure_worker(runtime, IMPORT_KIND, app, processes) as is_own_worker:
            check = None if is_own_worker else WorkerCheck(runtime, IMPORT_KIND, app)
            job = await show_progress_until_closed(runtime, job, check)
    except asyncio.CancelledError:
        reference = "" if app == BUILTIN_MILL_REFERENCE else f" {app}"
        console.print(f"{job.key} is saved. To continue it, run: tidemill worker{reference}", highlight=False)
        raise
    await _print_report_and_write_errors(runtime, job, errors_to)
    return job


async def _submit_import(runtime: Runtime, arguments: ImportArguments) -> UUID:
    imports = runtime.get(make_import_use_cases)
    submission = await imports.check_and_prepare_submission(arguments.options, role=None)
    submission = replace(submission, uses_memory=arguments.uses_memory)
    source = await _reference_url_or_stage_input(runtime.get(make_staged_files), arguments.file)
    try:
        submitted = await imports.submit(submission, source)
    except AmbiguousFormats as error:
        raise InvalidInput(format_choices(error)) from error
    except InvalidColumns as error:
        raise InvalidInput(f"{error}. {MAP_OPTION_HINT}") from error
    if submitted.remembered is not None and submitted.remembered.is_noteworthy:
        print_remembered(submitted.remembered.to_json())
    if submitted.layout is not None:
        print_layout(submitted.layout.to_json())
    return submitted.job_id


async def _preview_import(runtime: Runtime, arguments: ImportArguments, rows: int) -> None:
    if is_remote_url(arguments.file):
        raise InvalidInput("Cannot preview a URL. Download the file and preview the copy.")
    with open_runtime_for_local_preview(runtime) as (local, staged):
        submission = await local.get(make_import_use_cases).check_and_prepare_submission(arguments.options, role=None)
        uses_memory = arguments.uses_memory and await may_read_mappings(runtime.db)
        submission = replace(submission, uses_memory=uses_memory)
        source = await _reference_url_or_stage_input(staged, arguments.file)
        preview = await preview_import_and_delete_file(local, staged, submission, source, rows=rows)
        print_preview(preview)
        fields = list(preview["mapping"].values())
        if preview["unknown"] or preview["missing"] or len(fields) > len(set(fields)):
            console.print(f"  {MAP_OPTION_HINT}", highlight=False)
        elif preview["problems"]:
            raise InvalidInput("Cannot import this file. See the problems above.")


async def _print_report_and_write_errors(runtime: Runtime, job: Job, errors_to: Path | None) -> None:
    if "layout" in job.params:  # a worker downloaded and inspected the file
        print_layout(job.params["layout"])
    console.print(
        f"{job.key}  {format_job_status(job.status)}  {format_job_counts(job.counts)} of {job.counts.total:,}"
    )
    if job.failure_reason:
        console.print(f"  [red]{escape(job.failure_reason)}[/]", highlight=False, soft_wrap=True)
    report = await runtime.get(make_import_use_cases).read_report(job)
    print_import_effects(job, report.effects, report.created)
    if report.error_samples:
        print_error_samples(report.error_samples)
    if errors_to is not None:  # also without failed rows: the file may contain those of another import
        suffix = errors_to.suffix.lower().removeprefix(".")
        format_ = suffix if suffix in ERROR_FILE_FORMATS else "csv"
        rows = await open_error_file(runtime.db, job, format_)
        with open_atomic_output(errors_to) as file:
            async for chunk in rows.chunks:
                file.write(chunk)
        if rows.note is not None:
            console.print(f"  {rows.note}", highlight=False, soft_wrap=True)
    if errors_to is not None and job.counts.failed:
        console.print(
            f"  Fix these rows in [bold]{escape(str(errors_to))}[/], then run: "
            f"tidemill fix {job.key} {escape(shlex.quote(str(errors_to)))}",
            highlight=False,
            soft_wrap=True,
        )


async def _reference_url_or_stage_input(staged: StagedFiles, text: str) -> ImportSource:
    """Return a reference to the URL, or a staged copy of the file or of standard input."""
    if is_remote_url(text):
        return FileReference(url=text)
    if text in streams.STDIN_PATHS:
        with streams.open_stdin_chunks() as chunks:
            return ImportFile(await staged.stage_chunks(chunks), "stdin")
    path = _resolve_input_path(text)
    return ImportFile(await staged.stage_file(path), path.name)


def check_is_import(job: Job, remedy: str) -> None:
    if job.kind != IMPORT_KIND:
        kind = _NAMES_OF_KINDS.get(job.kind, f'of the kind "{job.kind}"')
        raise InvalidInput(f"Job {job.key} is {kind}, not an import. {remedy}")


def _resolve_input_path(text: str) -> Path:
    """Return the path of an existing file or pipe; InvalidInput if it is a folder or cannot be read."""
    path = Path(text)
    try:
        if path.is_dir():
            raise InvalidInput(f'Cannot read "{text}": it is a folder')
        if path.exists():
            return path
    except OSError as error:
        raise InvalidInput(f'Cannot read "{text}": {error.strerror}') from error
    raise InvalidInput(f'File "{text}" does not exist')


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidInput(f'Invalid value "{value}" for {option}. Use {", ".join(choices[:-1])} or {choices[-1]}.')
    return value


def _parse_assignment(option: str, form: str, text: str) -> tuple[str, str]:
    name, separator, value = text.rpartition("=")
    if not separator:
        raise InvalidInput(f'Invalid value "{text}" for {option}. Use {form}.')
    return name, value


def _parse_first_assignment(option: str, form: str, text: str) -> tuple[str, str]:
    """Parse an assignment whose value can contain the sign =."""
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidInput(f'Invalid value "{text}" for {option}. Use {form}.')
    return name.strip(), value


def _parse_translations(options: list[str]) -> Translations:
    translations: Translations = {}
    for option in options:
        name, _, texts = option.partition(":")
        text, separator, new = texts.rpartition("=")
        if not separator:
            raise InvalidInput(f'Invalid value "{option}" for --translate. Use FIELD:TEXT=NEW.')
        if translations.setdefault(name, {}).setdefault(text, new) != new:
            raise InvalidInput(f'--translate: "{text}" in field "{name}" has two translations')
    return translations


def _parse_lookups(options: list[str]) -> dict[str, list[str]]:
    lookups: dict[str, str] = {}
    for name, columns in (_parse_assignment("--lookup", "FIELD=COLUMN", text) for text in options):
        if name in lookups:
            raise InvalidInput(f'--lookup: "{name}" has two lookups. Use {name}=COLUMN,COLUMN for several columns.')
        lookups[name] = columns
    return parse_lookups(lookups)


@commands.command("promote")
def promote_command(
    job: JobArgument,
    errors_to: RemainingErrorsOption = None,
    processes: FallbackProcessesOption = 2,
    app: NormalizerMillOption = BUILTIN_MILL_REFERENCE,
) -> None:
    """Promote a dry run: import its file with all fixed rows."""

    async def action(runtime: Runtime) -> Job:
        dry_run = await queries.get_job_by_reference(runtime.db, job)
        check_is_import(dry_run, "Only a dry run of an import (--validate-only) can be promoted.")
        promoted = await promote_dry_run(runtime, dry_run, by=LOCAL_USER_ID, role=None)
        return await queries.get_job_by_reference(runtime.db, str(promoted.job_id))

    follow_import_and_exit(run_with_runtime(action, app=app), errors_to=errors_to, processes=processes, app=app)
