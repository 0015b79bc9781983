"""How jobs, items and progress look on a terminal."""

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from tidemill.domain.job import Counts, Job
from tidemill.domain.status import JobStatus

console = Console()
errors = Console(stderr=True)

_COLOURS = {
    JobStatus.COMPLETED: "green",
    JobStatus.COMPLETED_WITH_ERRORS: "yellow",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "red",
    JobStatus.CANCELLING: "magenta",
    JobStatus.PAUSED: "magenta",
}


def status_text(status: JobStatus) -> str:
    colour = _COLOURS.get(status, "cyan")
    return f"[{colour}]{status}[/]"


def progress_bar() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[key]}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=errors,
        transient=not errors.is_terminal,
    )


def detail(counts: Counts, rate: float | None = None) -> str:
    parts = [f"[green]{counts.done:,} done[/]"]
    named = {"failed": "red", "retry_wait": "yellow", "not_found": "yellow", "skipped": "dim", "cancelled": "magenta"}
    words = {"retry_wait": "retrying", "not_found": "not found"}
    parts += [
        f"[{colour}]{getattr(counts, n):,} {words.get(n, n)}[/]" for n, colour in named.items() if getattr(counts, n)
    ]
    if rate is not None:
        parts.append(f"[dim]{rate:,.0f}/s[/]")
    return " · ".join(parts)


def jobs_table(jobs: list[Job]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("job", "kind", "status"):
        table.add_column(name, no_wrap=True, overflow="fold")
    for name in ("total", "done", "failed", "open"):
        table.add_column(name, justify="right")
    table.add_column("created")
    for job in jobs:
        created = "" if job.created_at is None else job.created_at.strftime("%Y-%m-%d %H:%M:%S")
        total = f"{job.counts.total:,}" + ("" if job.ingest_complete else "+")
        numbers = [f"{n:,}" for n in (job.counts.done, job.counts.failed, job.counts.open)]
        table.add_row(job.key, escape(job.kind), status_text(job.status), total, *numbers, created)
    return table


def summary(job: Job) -> None:
    console.print(f"{job.key}  {status_text(job.status)}  {detail(job.counts)} of {job.counts.total:,}")
    if job.failure_reason:
        console.print(f"  [red]{escape(job.failure_reason)}[/]", highlight=False)
    for code, n in sorted(job.codes.items(), key=lambda pair: -pair[1]):
        console.print(f"  [red]{n:,}[/] × {escape(code)}")


def item_line(item: dict[str, Any]) -> str:
    shown = {
        name: item[name]
        for name in ("seq", "status", "attempts", "error", "result", "input")
        if item.get(name) is not None
    }
    return json.dumps(shown, ensure_ascii=False, default=str)
