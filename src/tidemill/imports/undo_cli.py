"""The command that undoes an import."""

from typing import Annotated

import typer

from tidemill.core.errors import InvalidInput
from tidemill.core.job import Job
from tidemill.core.json_input import JsonObject
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.imports.undo import UndoState, list_undo_exceptions, preview_complete_undo, read_undo_state, start_undo
from tidemill.jobs import queries
from tidemill.jobs.cli import JobArgument
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import run_with_runtime
from tidemill.terminal.console import JsonOption, console, error_console, escape_text, print_json_lines, print_table

commands = typer.Typer()
SHOWN_ROWS, LISTED_ROWS_PER_PAGE = 20, 1_000


@commands.command("undo")
def undo_command(
    job: JobArgument,
    preview: Annotated[
        bool, typer.Option("--preview", help="Count the rows that would be reversed, kept and blocked; change nothing")
    ] = False,
    redo: Annotated[bool, typer.Option("--redo", help="Reverse the undos of the import")] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="List all rows that the last undo or redo did not reverse; change nothing")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Undo an import, except for rows that have changed since. The exit code is 0 only if all rows were reversed."""
    if rows and (preview or redo):
        raise InvalidInput("--rows cannot be used with --preview or --redo")
    if rows:
        run_with_runtime(lambda runtime: _print_exceptions(runtime, job, as_json=as_json))
    elif preview:
        run_with_runtime(lambda runtime: _print_preview(runtime, job, redo=redo, as_json=as_json))
    elif not run_with_runtime(lambda runtime: _undo(runtime, job, redo=redo, as_json=as_json)):
        raise typer.Exit(1)


async def _print_preview(runtime: Runtime, name: str, *, redo: bool, as_json: bool) -> None:
    job = await queries.get_job_by_reference(runtime.db, name)
    with error_console.status("Checking rows") as status:
        preview = await preview_complete_undo(
            runtime,
            job,
            redo=redo,
            report=lambda part: status.update(f"Checked {part.checked:,} of {part.rows:,} rows"),
        )
    if as_json:
        counts = {name: getattr(preview, name) for name in ("rows", "reversed", "kept", "blocked")}
        print_json_lines([{"job": job.key} | counts])
        return
    verb = "restored" if redo else "reversed"
    console.print(f"{preview.reversed:,} rows would be {verb}", highlight=False)
    console.print(f"{preview.kept:,} rows would be kept, because they have changed since", highlight=False)
    console.print(f"{preview.blocked:,} rows are blocked, because other rows refer to them", highlight=False)


async def _undo(runtime: Runtime, name: str, *, redo: bool, as_json: bool) -> bool:
    job = await queries.get_job_by_reference(runtime.db, name)
    with error_console.status(f"{'Redoing' if redo else 'Undoing'} {job.key}"):
        operation = await start_undo(runtime, job, redo=redo, by=LOCAL_USER_ID)
    state = await read_undo_state(runtime, job)
    is_complete = operation.state == "done" and not state.kept and not state.blocked
    if as_json:
        print_json_lines([_build_result(job, state)])
    else:
        await _print_result(runtime, job, state, redo=redo)
    return is_complete


def _build_result(job: Job, state: UndoState) -> JsonObject:
    operation = state.operation
    return {
        "job": job.key,
        "verb": None if operation is None else operation.verb,
        "state": None if operation is None else operation.state,
        "reversed": 0 if operation is None else operation.items,
        "kept": state.kept,
        "blocked": state.blocked,
        "error": None if operation is None else operation.error,
    }


async def _print_result(runtime: Runtime, job: Job, state: UndoState, *, redo: bool) -> None:
    operation = state.operation
    assert operation is not None  # noqa: S101  it has just ended
    console.print(f"{'Restored' if redo else 'Reversed'} {operation.items:,} rows of {job.key}", highlight=False)
    if operation.error:
        console.print(f"  [red]{escape_text(operation.error)}[/]", highlight=False, soft_wrap=True)
    if not state.kept and not state.blocked:
        return
    console.print(f"  {state.kept:,} rows were kept, because they have changed since", highlight=False)
    console.print(f"  {state.blocked:,} rows could not be reversed", highlight=False)
    page = await list_undo_exceptions(runtime, job, limit=SHOWN_ROWS)
    _print_rows([(one.status, ", ".join(one.key), one.reason) for one in page.items])
    if page.after is not None:
        console.print(f"  To list all, run: tidemill undo {job.key} --rows", highlight=False)


async def _print_exceptions(runtime: Runtime, name: str, *, as_json: bool) -> None:
    job = await queries.get_job_by_reference(runtime.db, name)
    after: object = None
    while True:
        page = await list_undo_exceptions(runtime, job, limit=LISTED_ROWS_PER_PAGE, after=after)
        if as_json:
            print_json_lines(
                {"status": one.status, "code": one.code, "reason": one.reason, "key": list(one.key)}
                for one in page.items
            )
        else:
            _print_rows([(one.status, ", ".join(one.key), one.reason) for one in page.items])
        if page.after is None:
            return
        after = page.after


def _print_rows(rows: list[tuple[str, str, str]]) -> None:
    print_table(["status", "key", "reason"], [[escape_text(cell) for cell in row] for row in rows], foldable=["reason"])
