"""How an import looks on a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from tidemill.cli.views import console
from tidemill.domain.importing import Checker, ImportRequest, columns_of, make_plan
from tidemill.domain.job import Job
from tidemill.domain.resource import Resource
from tidemill.domain.values.field import Normalizer
from tidemill.operations.imports import Look

CELL_MAX = 30


def show_effects(job: Job, effects: Mapping[str, int]) -> None:
    would = "would be " if job.params.get("plan", {}).get("validate_only") else ""
    said = [f"{n:,} {would}{name}" for name, n in effects.items() if n]
    if said:
        console.print("  " + " · ".join(said), highlight=False)


def show_errors(samples: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
    """A line for each error code: how many rows, and one of them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("error", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("row", justify="right")
    table.add_column("for example", no_wrap=True, max_width=20)
    table.add_column("reason", overflow="fold", min_width=24)
    for count, error in samples:
        shown = [error.get(name, "") for name in ("row", "value", "reason")]
        table.add_row(escape(str(error["code"])), f"{count:,}", *[escape(str(cell)) for cell in shown])
    console.print(table)


def show_preview(look: Look, resource: Resource, request: ImportRequest, normalizers: Mapping[str, Normalizer]) -> None:
    layout = ", ".join(f"{name} {_plain(value)}" for name, value in look.layout.items())
    console.print(f"[bold]{escape(layout)}[/]", highlight=False, soft_wrap=True)
    found = columns_of(request, resource, look.columns, named_by_rows=look.named_by_rows)
    for column in look.columns:
        target = found.mapping.get(column)
        shown = f"[green]{escape(target)}[/]" if target else "[yellow]left out[/]"
        console.print(f"  {escape(column)} → {shown}", highlight=False)
    for problem in found.problems:
        console.print(f"  [red]{escape(problem)}[/]", highlight=False, soft_wrap=True)
    console.print(_rows(look))
    if found.is_good:
        plan = make_plan(request, resource, look.columns, named_by_rows=look.named_by_rows)
        _show_problems(look, Checker(plan, normalizers))


def _rows(look: Look) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("row", justify="right")
    for column in look.columns:
        table.add_column(escape(column), no_wrap=True, max_width=CELL_MAX)
    for number, record in enumerate(look.records, 1):
        if isinstance(record, dict):
            table.add_row(str(number), *[escape(_cell(record.get(column))) for column in look.columns])
        else:
            table.add_row(str(number), escape(_cell(record)))
    return table


def _show_problems(look: Look, checker: Checker) -> None:
    checked = checker.check(look.records)
    for index, problems in sorted(checked.problems.items()):
        for problem in problems:
            field = "" if problem.field is None else f"{problem.field}: "
            console.print(f"  [red]row {index + 1}[/]  {escape(field + problem.reason)}", highlight=False)
    if not checked.problems:
        console.print("  these rows are fine by themselves", highlight=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else repr(value)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
