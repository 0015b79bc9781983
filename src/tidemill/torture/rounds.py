"""The rounds of a run: a phase of faults, and a quiet point at which all jobs must end and the ledgers must agree."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from tidemill.core.errors import Conflict, TidemillError, UnknownJob
from tidemill.core.job import Job
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.jobs import job_control
from tidemill.jobs.reprocessing import ReprocessSelection, reprocess_items
from tidemill.store import job_records
from tidemill.store.database import Database
from tidemill.torture import ledgers
from tidemill.torture.client import Client, ClientJob, NoAnswer, Operations
from tidemill.torture.faults import Faults, NotApplied
from tidemill.torture.ledgers import Report, Violation
from tidemill.torture.plan import DISTRIBUTION, EXPORT, PlannedFault, PlannedJob, PlannedOperation, Round
from tidemill.torture.processes import execute_statement, fetch_statement_rows
from tidemill.torture.workload import build_file_rows

T = TypeVar("T")
QUIET_DEADLINE_S, QUIET_PROGRESS_S = 600.0, 90.0  # for all jobs to end, and for the next item to be settled
QUIET_POLL_S = 0.25
PROGRESS_POLL_S = 0.1
CALLS_AT_ONCE, FAULTS_AT_ONCE = 8, 3
JOBS_PER_ROUND_MAX, OPEN_ITEMS_MAX = 40, 5_000
RERUNS_MAX = 3  # of items that failed because of faults


@dataclass
class RecoveryClock:
    """The longest time from the end of a fault until an item was settled, while there was open work."""

    report: Report
    _ended_at: float | None = None  # of the first fault since an item was settled
    _fault: str = ""

    def end_fault(self, name: str) -> None:
        if self._ended_at is None:
            self._ended_at, self._fault = time.monotonic(), name

    def record(self, *, has_settled: bool, has_open: bool) -> None:
        if self._ended_at is None or (has_open and not has_settled):
            return
        seconds, self._ended_at = time.monotonic() - self._ended_at, None
        if has_settled and seconds > self.report.longest_recovery_s:
            self.report.longest_recovery_s, self.report.longest_recovery_after = seconds, self._fault


@dataclass
class RoundRunner:
    """Runs the rounds of a plan."""

    db: Database  # does not use the proxy
    client: Client
    operations: Operations
    faults: Faults
    outside: ledgers.OutsideLedger
    owner_id: int
    report: Report
    announce: Callable[[str], None]
    _calls: set["asyncio.Task[None]"] = field(default_factory=set)
    _active_faults: set["asyncio.Task[None]"] = field(default_factory=set)
    _open_items: int = 0  # at the last measurement

    def __post_init__(self) -> None:
        self._recovery = RecoveryClock(self.report)

    async def run_round(self, planned: Round) -> None:
        """Run the events of a round at their times, then reach a quiet point and compare the ledgers."""
        self.announce(f"round {planned.number}: {len(planned.jobs)} jobs, {len(planned.faults)} faults")
        started = time.monotonic()
        events: tuple[PlannedJob | PlannedOperation | PlannedFault, ...]
        events = (*planned.jobs, *planned.operations, *planned.faults)
        for number, event in enumerate(sorted(events, key=lambda event: event.at)):
            await asyncio.sleep(max(0.0, started + event.at - time.monotonic()))
            match event:
                case PlannedFault():
                    _start_task_unless_too_many(self._active_faults, FAULTS_AT_ONCE, self._apply_fault, event)
                case PlannedJob():
                    key = f"torture-{self.owner_id}-{self.report.seed}-{planned.number}-{number}"
                    _start_task_unless_too_many(
                        self._calls, CALLS_AT_ONCE, self._run_call, partial(self._submit, event, key)
                    )
                case PlannedOperation():
                    _start_task_unless_too_many(
                        self._calls, CALLS_AT_ONCE, self._run_call, partial(self.operations.run, event)
                    )
        await asyncio.gather(*self._active_faults, *self._calls)
        await self.reach_quiet_point()
        await self._delete_jobs(planned.number)

    async def watch_progress(self) -> None:
        """Measure recoveries, until the task is cancelled."""
        last = 0
        while True:
            [row] = await self.db.read(fetch_statement_rows, "progress", {"owner_id": self.owner_id})
            self._recovery.record(has_settled=row["settled"] > last, has_open=row["open"] > 0)
            last, self._open_items = row["settled"], row["open"]
            await asyncio.sleep(PROGRESS_POLL_S)

    async def _apply_fault(self, planned: PlannedFault) -> None:
        shown = f"  {planned.at:6.1f} s  {planned.name} ({planned.seconds:.1f} s, target {planned.pick:.3f})"
        try:
            await self.faults.apply(planned)
        except NotApplied:
            self.announce(f"{shown}: no target")
        except Exception as error:  # noqa: BLE001  the server cannot be started again, for example
            self._add_and_announce_violation(Violation("stuck", planned.name, None, describe_traceback(error)))
        else:
            self.report.faults[planned.name] += 1
            self.announce(shown)
        finally:
            self._recovery.end_fault(planned.name)

    async def _run_call(self, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except NoAnswer as error:
            self._add_and_announce_violation(Violation("stuck", "client", None, str(error)))
        except Exception as error:  # noqa: BLE001  the API refused a valid request, for example
            self._add_and_announce_violation(Violation("lost", "client", None, describe_traceback(error)))

    async def _submit(self, planned: PlannedJob, key: str) -> None:
        if len(self.client.jobs) < JOBS_PER_ROUND_MAX and self._open_items + planned.rows <= OPEN_ITEMS_MAX:
            await self.client.submit(planned, key)
            self.report.jobs += 1
            self.report.items += planned.rows

    async def reach_quiet_point(self) -> None:
        """End all faults, drive all jobs to their ends, and compare the ledgers."""
        began, before = time.monotonic(), len(self.report.violations)
        await self.faults.heal()
        for _ in range(RERUNS_MAX):
            await self._wait_until_jobs_and_operations_end()
            if not await self._rerun_items_failed_by_faults():
                break
        self.outside.read()
        for job in list(self.client.jobs):
            found = len(self.report.violations)
            try:
                await self._compare_job(job)
            except Exception as error:  # noqa: BLE001  a file cannot be read, for example
                self._add_and_announce_violation(
                    Violation("lost", f"{job.what} job {job.id}", None, describe_traceback(error))
                )
            if len(self.report.violations) > found:
                self._move_job_to_suspects(job)
        accepted = [*self.client.jobs, *self.client.suspects]
        for violation in await self.db.read_snapshot(ledgers.check_stored_jobs, self.owner_id, accepted):
            self._add_and_announce_violation(violation)
        found, seconds = len(self.report.violations) - before, time.monotonic() - began
        self.announce(f"  quiet point: {len(accepted)} jobs, {found} violations, {seconds:.0f} s")

    async def _compare_job(self, job: ClientJob) -> None:
        stored = await self._read_stored_job(job)
        for violation in ledgers.compare_ledgers(job, stored, self.outside.get(job.id)):
            self._add_and_announce_violation(violation)
        if stored is not None:
            await self._compare_files(job, stored)

    def _move_job_to_suspects(self, job: ClientJob) -> None:
        self.client.jobs.remove(job)
        self.client.suspects.append(job)

    def _add_and_announce_violation(self, violation: Violation) -> None:
        self.report.violations.append(violation)
        self.announce(f"  {violation}")

    async def _wait_until_jobs_and_operations_end(self) -> None:
        """Resume paused jobs and wait until all jobs are closed and all bulk operations have ended."""
        deadline, progress_deadline, last = time.monotonic() + QUIET_DEADLINE_S, 0.0, None
        while True:
            opened = [(one, job) for one in self.client.jobs if (job := await self._resume_and_read(one)) is not None]
            [row] = await self.db.read(
                fetch_statement_rows, "count_unfinished", {"owner_id": self.owner_id, "job_ids": []}
            )
            state = ([job.counts for _, job in opened], row["operations"])
            if not opened and not row["operations"]:
                return
            now = time.monotonic()
            if state != last:
                last, progress_deadline = state, now + QUIET_PROGRESS_S
            if now > min(deadline, progress_deadline):
                break
            await asyncio.sleep(QUIET_POLL_S)
        for one, job in opened:
            batches = await self.db.read(fetch_statement_rows, "describe_open_batches", {"job_id": one.id})
            evidence = f"{job.status}: {job.counts} {[*map(str, batches)]}"
            self._add_and_announce_violation(Violation("stuck", f"{one.what} job {one.id}", None, evidence))
            self._move_job_to_suspects(one)
        if row["operations"]:
            self._add_and_announce_violation(
                Violation("stuck", "bulk operations", None, f"{row['operations']} still run")
            )

    async def _resume_and_read(self, one: ClientJob) -> Job | None:
        """Return a job that is still open; None if it is closed or does not exist."""
        try:
            job = await self.db.read(job_records.get_job, one.id)
            if job.status is JobStatus.PAUSED:
                await job_control.resume_job(self.db, one.id)
        except UnknownJob:
            return None
        except Conflict:  # a delayed request has changed the job
            return job
        return None if job.is_closed else job

    async def _rerun_items_failed_by_faults(self) -> bool:
        """Run valid items that failed again, and the items of failed jobs. Return whether there were any."""
        has_run = False
        for one in list(self.client.jobs):
            stored = await self._read_stored_job(one)
            if stored is None:
                continue
            for code, seqs in ledgers.select_failed_by_faults(one, stored).items():
                self.report.failed_by_faults[code] += len(seqs)
                await self._reprocess_or_report_stuck_job(
                    one.id, ReprocessSelection(statuses=[ItemStatus.FAILED], seqs=seqs)
                )
                has_run = True
            job = await self.db.read(job_records.get_job, one.id)
            if job.status is JobStatus.FAILED:
                self.report.failed_by_faults[f"the job failed: {job.failure_reason}"] += job.counts.cancelled
                statuses = [ItemStatus.FAILED, ItemStatus.CANCELLED]
                await self._reprocess_or_report_stuck_job(one.id, ReprocessSelection(statuses=statuses))
                has_run = True
        return has_run

    async def _reprocess_or_report_stuck_job(self, job_id: UUID, selection: ReprocessSelection) -> None:
        try:
            await reprocess_items(self.db, job_id, selection, user_id=self.owner_id)
        except TidemillError as error:
            self._add_and_announce_violation(
                Violation("stuck", str(job_id), None, f"its failed items cannot run again: {error}")
            )

    async def _read_stored_job(self, job: ClientJob) -> ledgers.StoredJob | None:
        try:
            await self.db.read(job_records.get_job, job.id)
        except UnknownJob:
            return None
        return await self.db.read_snapshot(ledgers.read_stored_job, job)

    async def _compare_files(self, job: ClientJob, stored: ledgers.StoredJob) -> None:
        done = [seq for seq, status in stored.statuses.items() if status == "done"]
        if job.what == EXPORT and done and not job.may_be_cancelled:  # a cancellation removes the file
            with await self.client.mill.open_export_async(job.id) as file:
                found = (await asyncio.to_thread(file.read)).decode().splitlines()
            wanted = ledgers.build_export_lines(await self.db.read(fetch_statement_rows, "list_source", {}))
            for violation in ledgers.compare_file(job, 0, found, wanted):
                self._add_and_announce_violation(violation)
        elif job.what == DISTRIBUTION:
            for seq in done:
                response = await self.client.call("GET", f"/distributions/{job.id}/files/{seq}", follow_redirects=True)
                wanted = ["n,line", *(f"{row['n']},{row['line']}" for row in build_file_rows(seq))]
                for violation in ledgers.compare_file(job, seq, response.text.splitlines(), wanted):
                    self._add_and_announce_violation(violation)

    async def _delete_jobs(self, number: int) -> None:
        """Delete the checked jobs. Jobs with violations stay, as evidence."""
        for index, job in enumerate(list(self.client.jobs)):
            await self.operations.delete(job, by_http=(index + number) % 2 == 0)
            self.outside.forget(job.id)
        await self.db.run(execute_statement, "forget_jobs", {"job_ids": self.client.deleted})

    async def delete_all_jobs(self) -> None:
        """Delete all jobs of the run, and wait until their rows are gone."""
        for job in [*self.client.jobs, *self.client.suspects]:
            await self.operations.delete(job, by_http=False)
        await self.wait_for_deletions()

    async def wait_for_deletions(self) -> None:
        """Wait until the rows of all deleted jobs are gone."""
        deadline = time.monotonic() + QUIET_DEADLINE_S
        params = {"owner_id": self.owner_id, "job_ids": self.client.deleted}
        while (left := (await self.db.read(fetch_statement_rows, "count_unfinished", params))[0]["deleted_jobs"]) > 0:
            if time.monotonic() > deadline:
                self._add_and_announce_violation(
                    Violation("stuck", "deletion", None, f"rows of {left} deleted jobs still exist")
                )
                return
            await asyncio.sleep(QUIET_POLL_S)


def _start_task_unless_too_many(
    tasks: set["asyncio.Task[None]"], most: int, work: Callable[[T], Coroutine[Any, Any, None]], argument: T
) -> None:
    """Run the work in a task, unless there are already ``most`` tasks."""
    if len(tasks) < most:
        task = asyncio.create_task(work(argument))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def describe_traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error))
