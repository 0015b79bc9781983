"""How jobs, items and progress look on a terminal."""

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from tidemill.core.job import Counts, Job
from tidemill.core.status import JobStatus

console = Console()
error_console = Console(stderr=True)

_JOB_STATUS_COLOURS = {
    JobStatus.COMPLETED: "green",
    JobStatus.COMPLETED_WITH_ERRORS: "yellow",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "red",
    JobStatus.CANCELLING: "magenta",
    JobStatus.PAUSED: "magenta",
}


def format_job_status(status: JobStatus) -> str:
    colour = _JOB_STATUS_COLOURS.get(status, "cyan")
    return f"[{colour}]{status}[/]"


def create_job_progress_bar() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[key]}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=error_console,
        transient=not error_console.is_terminal,
    )


def format_job_counts(counts: Counts, rate: float | None = None) -> str:
    parts = [f"[green]{counts.done:,} done[/]"]
    named = {"failed": "red", "retry_wait": "yellow", "not_found": "yellow", "skipped": "dim", "cancelled": "magenta"}
    words = {"retry_wait": "retrying", "not_found": "not found"}
    parts += [
        f"[{colour}]{getattr(counts, n):,} {words.get(n, n)}[/]" for n, colour in named.items() if getattr(counts, n)
    ]
    if rate is not None:
        parts.append(f"[dim]{rate:,.0f}/s[/]")
    return " · ".join(parts)


def print_job_summary(job: Job) -> None:
    console.print(
        f"{job.key}  {format_job_status(job.status)}  {format_job_counts(job.counts)} of {job.counts.total:,}"
    )
    if job.failure_reason:
        console.print(f"  [red]{escape(job.failure_reason)}[/]", highlight=False)
    for code, n in sorted(job.codes.items(), key=lambda pair: -pair[1]):
        console.print(f"  [red]{n:,}[/] × {escape(code)}")
