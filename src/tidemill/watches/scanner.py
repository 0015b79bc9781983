"""Scans watches: lists their sources, submits complete files and archives stored ones.

A lease ensures that one process at a time scans a watch.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import uuid4

from tidemill.config import Settings
from tidemill.core.blob_location import BucketLocation
from tidemill.core.errors import Busy, Interrupted, InvalidInput, TidemillError
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.failpoints import failpoint
from tidemill.files.layout import parse_layout_options
from tidemill.runtime import Runtime
from tidemill.store.database import Database
from tidemill.telemetry.events import bind_fields, emit
from tidemill.watches import watch_records
from tidemill.watches.file_archiver import FileArchiver
from tidemill.watches.file_names import find_name_problem, make_printable_path, sanitize_problem_text
from tidemill.watches.file_state import ListedFile, WatchFile
from tidemill.watches.file_submitter import FileSubmissionResult, WatchFileSubmitter
from tidemill.watches.sources import open_watch_source
from tidemill.watches.sources.watch_source import FetchLimits, WatchSource
from tidemill.watches.watch import FolderAddress, Watch, WebAddress, compute_scan_delay, find_overlap_problems
from tidemill.watches.watch_records import WatchLease, WatchScanResult, WatchScope

LISTED_FILES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class SourceListing:
    """Files that match the watch, including refused files.

    ``marked_paths`` are the files that have a marker, or None if the watch uses no markers.
    """

    entries: list[ListedFile]
    marked_paths: list[str] | None
    is_complete: bool
    source_problem: str | None = None

    @property
    def accepted_count(self) -> int:
        return sum(file.refusal_reason is None for file in self.entries)

    @property
    def problem(self) -> str | None:
        if self.source_problem is not None or self.is_complete:
            return self.source_problem
        return f"The source has more than {LISTED_FILES_MAX:,} files. The scan ignored the rest"


def list_source_files(watch: Watch, source: WatchSource) -> SourceListing:
    """Return the current files of a source. This call blocks; run it in a thread."""
    entries: list[ListedFile] = []
    markers: dict[str, ListedFile] = {}
    for entry in source.list_files(
        recursive=watch.pattern.is_recursive, skip_folders=frozenset({watch.processed, watch.failed})
    ):
        if watch.marker is not None and entry.path.endswith(watch.marker):
            markers[entry.path.removesuffix(watch.marker)] = entry
        elif _accepts_path(watch, entry.path):
            entries.append(_mark_invalid_name(entry))
        if len(entries) >= LISTED_FILES_MAX:
            return SourceListing(entries, _find_marked_paths(watch, entries, markers), is_complete=False)
    problem = source.listing_errors[0] if source.listing_errors else None
    return SourceListing(
        entries, _find_marked_paths(watch, entries, markers), is_complete=problem is None, source_problem=problem
    )


def _accepts_path(watch: Watch, path: str) -> bool:
    if isinstance(watch.source, WebAddress):  # HTTP sources have no folders; the name is the last part of the URL
        return watch.pattern.matches_name(path.partition("#")[0]) or not watch.source.is_index
    return watch.accepts_path(path)


def _mark_invalid_name(entry: ListedFile) -> ListedFile:
    problem = find_name_problem(entry.path)
    return entry if problem is None else replace(entry, path=make_printable_path(entry.path), refusal_reason=problem)


def _find_marked_paths(watch: Watch, entries: list[ListedFile], markers: dict[str, ListedFile]) -> list[str] | None:
    """Return the files with a marker, or None if the watch uses no markers.

    A marker that is older than its file belongs to an earlier version and does not count.
    """
    if watch.marker is None:
        return None
    return [file.path for file in entries if file.path in markers and not markers[file.path].is_older_than(file)]


FILES_RECORDED_AT_ONCE = 1_000
SCAN_FILES_REPORTED_MAX = 500
SCAN_IDLE_S = 5.0
WAITS_UNTIL_STABLE_MESSAGE = "Waiting until the file stops changing"
WAITS_FOR_CONTENT_MESSAGE = "The file is empty; waiting for content"
WAITS_FOR_MARKER_MESSAGE = "Waiting for a marker that is not older than the file"
LISTING_UNFINISHED_MESSAGE = "The scan ran out of time before it listed all files; the next scan lists them again"
FILES_REMAIN_MESSAGE = "The scan ran out of time before it submitted all files; the next scan continues"
RETRIED_AFTER_FAILURE_MESSAGE = "Retrying after a failure"
ShouldContinue = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class WatchScanReport:
    """The result of a scan, and the files that it changed or that still wait."""

    watch: Watch
    result: WatchScanResult
    files: list[WatchFile] = field(default_factory=list)

    @property
    def problem(self) -> str | None:
        """The problem of the watch, or a message that the scan ran out of time."""
        if self.result.problem is not None or not self.result.is_cut:
            return self.result.problem
        return FILES_REMAIN_MESSAGE if self.result.looked else LISTING_UNFINISHED_MESSAGE


class WatchScanner:
    """Scans the watches that a process declares."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        declared: Mapping[str, Watch],
        submitter: WatchFileSubmitter,
        *,
        worker: str,
    ) -> None:
        self._db = db
        self._settings = settings
        self._watches = dict(declared)
        self._submitter = submitter
        self._archiver = FileArchiver(db)
        self._worker = worker
        self._lease_s = settings.lock_floor_ms / 1000
        self._is_registered = False

    @property
    def watches(self) -> Mapping[str, Watch]:
        return self._watches

    async def scan_due_watch(self, should_continue: ShouldContinue = lambda: True) -> float:
        """Scan one watch that is due. Return the seconds until the next call: 0 if another watch may be due."""
        if not self._watches:
            return SCAN_IDLE_S * 12
        await self._register_watches()
        names = list(self._watches)
        scheduled = [watch.name for watch in self._watches.values() if watch.every is not None]
        lease = await self._db.run(
            watch_records.lease_due_watch,
            names,
            scheduled,
            lease_id=uuid4(),
            seconds=self._lease_s,
            worker=self._worker,
        )
        if lease is not None:
            await self._run_scan(lease, should_continue)
            return 0
        seconds = await self._db.read(watch_records.read_seconds_to_next_due, names, scheduled)
        return SCAN_IDLE_S if seconds is None else min(max(seconds, 0.05), SCAN_IDLE_S)

    async def scan_watch(
        self, name: str, *, retry_failed: bool = False, should_continue: ShouldContinue = lambda: True
    ) -> WatchScanReport:
        """Scan a watch now, independently of its schedule.

        Raises:
            Busy: Another process is scanning it.
        """
        await self._register_watches()
        lease = await self._db.run(
            watch_records.lease_watch, name, lease_id=uuid4(), seconds=self._lease_s, worker=self._worker
        )
        if lease is None:
            raise Busy(f'Another process is scanning watch "{name}"')
        result = await self._run_scan(lease, should_continue, retry_failed=retry_failed)
        files = await self._db.read(watch_records.list_files_of_scan, name, lease.began, SCAN_FILES_REPORTED_MAX)
        return WatchScanReport(self._watches[name], result, files)

    async def _register_watches(self) -> None:
        if not self._is_registered:
            await self._db.run(watch_records.register_missing_watches, self._watches)
            self._is_registered = True

    async def _run_scan(
        self, lease: WatchLease, should_continue: ShouldContinue, *, retry_failed: bool = False
    ) -> WatchScanResult:
        watch, started = self._watches[lease.name], time.monotonic()
        failpoint("watch.leased")
        with bind_fields(watch=watch.name):
            async with self._keep_lease_extended(lease, should_continue) as may_continue:
                result = await self._scan_safely(watch, lease, may_continue, retry_failed=retry_failed)
            result = replace(result, problem=result.problem and sanitize_problem_text(result.problem))
            await self._db.run(watch_records.finish_watch_scan, lease, result)
            if result.problem is not None:
                emit("watch.failed", watch=watch.name, error=result.problem)
            if result.looked:
                ms = round((time.monotonic() - started) * 1000, 1)
                emit("watch.scanned", watch=watch.name, found=result.found, submitted=result.submitted, ms=ms)
        return result

    async def _scan_safely(
        self, watch: Watch, lease: WatchLease, should_continue: ShouldContinue, *, retry_failed: bool
    ) -> WatchScanResult:
        """Scan, and return every error as the problem of the watch. The files keep their states."""
        every = watch.every or SCAN_IDLE_S
        try:
            return await self._archive_and_submit_files(watch, lease, should_continue, retry_failed=retry_failed)
        except Interrupted:
            return WatchScanResult(looked=False, delay=0.0 if lease.is_due else None, is_cut=True)
        except Exception as error:  # noqa: BLE001  an unexpected error must be visible and must release the lease
            is_known = isinstance(error, TidemillError | OSError)
            problem = str(error) if is_known else f"Scan failed: {type(error).__name__}: {error}"
            delay = compute_scan_delay(every, lease.failures) if lease.is_due else None
            return WatchScanResult(looked=lease.is_due, problem=problem, delay=delay)

    async def _archive_and_submit_files(
        self, watch: Watch, lease: WatchLease, should_continue: ShouldContinue, *, retry_failed: bool
    ) -> WatchScanResult:
        if not should_continue():
            raise Interrupted("The scan was interrupted")
        to_archive = await self._archiver.update_states_and_list_files_to_archive(watch)
        if not lease.is_due and (not to_archive or not watch.archives_files):
            problem = await self._archiver.archive_and_settle_files(watch, None, to_archive, should_continue)
            return WatchScanResult(looked=False, problem=problem)
        async with self._open_source(watch) as source:
            source.should_continue = should_continue
            target = source if watch.archives_files else None
            problem = await self._archiver.archive_and_settle_files(watch, target, to_archive, should_continue)
            if not lease.is_due:
                return WatchScanResult(looked=False, problem=problem)
            listing = await self._list_and_record_files(watch, source, retry_failed=retry_failed)
            files = await self._submit_ready_files(watch, lease, source, listing, should_continue)
        delay = 0.0 if files.has_more and files.problem is None else watch.every
        problem = problem or listing.problem or files.problem
        is_cut = files.has_more and not should_continue()
        return WatchScanResult(True, problem, listing.accepted_count, files.submitted, delay, is_cut)

    async def _list_and_record_files(self, watch: Watch, source: WatchSource, *, retry_failed: bool) -> SourceListing:
        """List the source, and store which files are new, changed or missing."""
        listing = await asyncio.to_thread(list_source_files, watch, source)
        scope = WatchScope(watch.name, watch.source_key, frozenset(self._watches))
        for start in range(0, len(listing.entries), FILES_RECORDED_AT_ONCE):
            await self._db.run(
                watch_records.record_new_and_changed_files,
                scope,
                listing.entries[start : start + FILES_RECORDED_AT_ONCE],
                partial(_explain_why_file_waits, watch),
            )
        if listing.is_complete:
            await self._db.run(watch_records.mark_missing_files, scope, listing.entries)
        if retry_failed:
            await self._db.run(
                watch_records.requeue_failed_files, scope, listing.entries, RETRIED_AFTER_FAILURE_MESSAGE
            )
        return listing

    async def _submit_ready_files(
        self,
        watch: Watch,
        lease: WatchLease,
        source: WatchSource,
        listing: SourceListing,
        should_continue: ShouldContinue,
    ) -> FileSubmissionResult:
        settings = self._settings
        files = await self._db.run(
            watch_records.list_ready_files,
            WatchScope(watch.name, watch.source_key),
            lease.began,
            stable_for=watch.stable_for,
            marked=listing.marked_paths,
            limit=settings.scan_max_files,
        )
        if not files:
            return FileSubmissionResult()
        prepared = await self._submitter.prepare_watch(watch)
        limits = FetchLimits(settings.max_file_size_mb << 20, should_continue, settings.remote_url_timeout)
        submitted = await self._submitter.submit_files(prepared, source, files, limits)
        return replace(submitted, has_more=submitted.has_more or len(files) == settings.scan_max_files)

    @contextlib.asynccontextmanager
    async def _open_source(self, watch: Watch) -> AsyncIterator[WatchSource]:
        source = await asyncio.to_thread(open_watch_source, watch, self._settings)
        try:
            yield source
        finally:
            await asyncio.to_thread(source.close)

    @contextlib.asynccontextmanager
    async def _keep_lease_extended(
        self, lease: WatchLease, should_continue: ShouldContinue
    ) -> AsyncIterator[ShouldContinue]:
        """Extend the lease while the scan runs. The scan must stop when the yielded function returns False."""
        is_held = True

        async def extend_lease() -> None:
            nonlocal is_held
            while is_held:
                await asyncio.sleep(self._lease_s / 3)
                is_held = await self._db.run(watch_records.extend_watch_lease, lease, self._lease_s)

        heartbeat = asyncio.create_task(extend_lease())
        try:
            yield lambda: is_held and should_continue()
        finally:
            heartbeat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await heartbeat


def _explain_why_file_waits(watch: Watch, entry: ListedFile) -> str:
    """Return why a file is not submitted yet."""
    if watch.marker is not None:
        return WAITS_FOR_MARKER_MESSAGE
    return WAITS_FOR_CONTENT_MESSAGE if entry.size == 0 else WAITS_UNTIL_STABLE_MESSAGE


def load_watches(runtime: Runtime) -> Mapping[str, Watch]:
    """Return the watches in ``tidemill.toml``.

    Raise InvalidSettings with all problems, including unknown folders and overlapping watches.
    """
    from tidemill.config_sections import raise_if_problems  # noqa: PLC0415  most processes declare no watches
    from tidemill.watches.config import parse_watches  # noqa: PLC0415

    settings = runtime.settings
    watches = runtime.load_section(lambda document: parse_watches(document, runtime.file_tasks))
    problems, folders = [], {}
    for watch in watches.values():
        if isinstance(watch.source, FolderAddress):
            root = settings.sources.get(watch.source.root)
            if root is None:
                known = ", ".join(sorted(settings.sources)) or "none"
                problems.append(
                    f'watches.{watch.name}.source: folder "{watch.source.root}" is not in TIDEMILL_SOURCES, '
                    f"which contains: {known}"
                )
            elif isinstance(root.path, BucketLocation):
                problems.append(
                    f'watches.{watch.name}.source: "{watch.source.root}" is the bucket {root.path}, not a folder. '
                    "Set the URL of the bucket"
                )
            else:
                folders[watch.name] = (root.path / watch.source.path).resolve()
        try:
            parse_layout_options(dict(watch.layout))
        except InvalidInput as error:
            problems.append(f"watches.{watch.name}.layout: {error}")
    problems += find_overlap_problems(watches.values(), folders)
    raise_if_problems("watches", problems)
    return watches


def make_watch_scanner(runtime: Runtime, worker: str | None = None) -> WatchScanner:
    """Return the scanner of a worker, or, without a worker id, of an HTTP service process."""
    submitter = WatchFileSubmitter(runtime)
    watches = runtime.get(load_watches)
    return WatchScanner(runtime.db, runtime.settings, watches, submitter, worker=worker or f"service-{os.getpid()}")


def make_worker_loops(runtime: Runtime, worker: str) -> list[PeriodicLoop]:
    """Return the loop that scans watches, or an empty list if the settings disable it."""
    return [WatchScanLoop(make_watch_scanner(runtime, worker))] if runtime.settings.scan_watches else []


class WatchScanLoop(PeriodicLoop):
    """Scans due watches one after another. A running scan ends soon after the loop is stopped."""

    name = "scan"

    def __init__(self, scanner: WatchScanner) -> None:
        super().__init__()
        self._scanner = scanner

    async def tick(self) -> float:
        return await self._scanner.scan_due_watch(lambda: not self.is_stopping)
