"""What is at a source, as far as its watch wants it.

A scan: look at what a watch watches, take what is whole, put away what is stored. One scans a watch at a time.
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
from tidemill.config_file import load_section
from tidemill.core.errors import Busy, Interrupted, InvalidInput, TidemillError
from tidemill.engine.loop import Loop
from tidemill.files.layout import validate_layout
from tidemill.runtime import Runtime
from tidemill.store.database import Database
from tidemill.telemetry.events import bind_fields, emit
from tidemill.watches import watch_files, watch_leases
from tidemill.watches.file_archiver import FileArchiver
from tidemill.watches.file_names import find_name_problem, make_printable_path, make_storable_problem
from tidemill.watches.file_state import ListedFile, WatchFile
from tidemill.watches.file_submitter import SubmittedFiles, WatchFileSubmitter
from tidemill.watches.source_address import FolderAddress, WebAddress
from tidemill.watches.sources import open_watch_source
from tidemill.watches.sources.watch_source import FetchLimits, WatchSource
from tidemill.watches.watch import Watch, compute_scan_delay, find_overlaps
from tidemill.watches.watch_files import WatchScope
from tidemill.watches.watch_leases import WatchLease, WatchScanResult

LISTED_FILES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class SourceListing:
    """Files that are wanted, and those that cannot be taken; with a marker, the paths that have theirs."""

    entries: list[ListedFile]
    marked_paths: list[str] | None
    is_complete: bool
    source_problem: str | None = None

    @property
    def accepted_count(self) -> int:
        return sum(one.refusal_reason is None for one in self.entries)

    @property
    def problem(self) -> str | None:
        if self.source_problem is not None or self.is_complete:
            return self.source_problem
        return f"there are more than {LISTED_FILES_MAX:,} files: only so many are looked at"


def list_source_files(watch: Watch, inlet: WatchSource) -> SourceListing:
    """Blocking: for threads."""
    entries: list[ListedFile] = []
    markers: dict[str, ListedFile] = {}
    for entry in inlet.list_files(
        recursive=watch.pattern.is_recursive, skip_folders=frozenset({watch.processed, watch.failed})
    ):
        if watch.marker is not None and entry.path.endswith(watch.marker):
            markers[entry.path.removesuffix(watch.marker)] = entry
        elif _accepts_path(watch, entry.path):
            entries.append(_make_storable(entry))
        if len(entries) >= LISTED_FILES_MAX:
            return SourceListing(entries, _find_marked_paths(watch, entries, markers), is_complete=False)
    trouble = inlet.listing_errors[0] if inlet.listing_errors else None
    return SourceListing(
        entries, _find_marked_paths(watch, entries, markers), is_complete=trouble is None, source_problem=trouble
    )


def _accepts_path(watch: Watch, path: str) -> bool:
    if isinstance(watch.source, WebAddress):  # the last part of a URL is its name; a list has no folders
        return watch.pattern.matches_name(path.partition("#")[0]) or not watch.source.is_index
    return watch.accepts_path(path)


def _make_storable(entry: ListedFile) -> ListedFile:
    problem = find_name_problem(entry.path)
    return entry if problem is None else replace(entry, path=make_printable_path(entry.path), refusal_reason=problem)


def _find_marked_paths(watch: Watch, entries: list[ListedFile], markers: dict[str, ListedFile]) -> list[str] | None:
    """A marker that is older than its file was another's: of the version before, which was put away without it."""
    if watch.marker is None:
        return None
    return [one.path for one in entries if one.path in markers and not markers[one.path].is_older_than(one)]


FILES_RECORDED_AT_ONCE = 1_000
SCAN_FILES_REPORTED_MAX = 500
SCAN_IDLE_S = 5.0
WAITS_UNTIL_STABLE_MESSAGE = "it waits until it has stopped changing"
WAITS_FOR_CONTENT_MESSAGE = "it is empty, and waits for content"
WAITS_FOR_MARKER_MESSAGE = "it waits for its marker, which may not be older than it is"
LISTING_UNFINISHED_MESSAGE = "there was no time to look at all of it: the next scan does"
FILES_REMAIN_MESSAGE = "there was no time to take all its files: the next scan goes on with them"
RETRIED_AFTER_FAILURE_MESSAGE = "it failed before, and is tried once more"
ShouldContinue = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class WatchScanReport:
    """What a scan came to."""

    watch: Watch
    result: WatchScanResult
    files: list[WatchFile] = field(default_factory=list)

    @property
    def problem(self) -> str | None:
        """For whoever asked for it: what is wrong with the watch, or that it did not come to an end."""
        if self.result.problem is not None or not self.result.is_cut:
            return self.result.problem
        return FILES_REMAIN_MESSAGE if self.result.looked else LISTING_UNFINISHED_MESSAGE


class WatchScanner:
    """The watches of a process, and the way to scan them."""

    def __init__(
        self, db: Database, settings: Settings, declared: Mapping[str, Watch], taker: WatchFileSubmitter, *, worker: str
    ) -> None:
        self._db = db
        self._settings = settings
        self._watches = dict(declared)
        self._submitter = taker
        self._archiver = FileArchiver(db)
        self._worker = worker
        self._lease_s = settings.lock_floor_ms / 1000
        self._is_registered = False

    @property
    def watches(self) -> Mapping[str, Watch]:
        return self._watches

    async def scan_next(self, should_continue: ShouldContinue = lambda: True) -> float:
        """Scan one watch whose turn it is; the seconds until somebody has to look again, 0 if at once."""
        if not self._watches:
            return SCAN_IDLE_S * 12
        await self._register_watches()
        names = list(self._watches)
        scheduled = [one.name for one in self._watches.values() if one.every is not None]
        turn = await self._db.run(
            watch_leases.lease_due_watch, names, scheduled, lease_id=uuid4(), seconds=self._lease_s, worker=self._worker
        )
        if turn is not None:
            await self._run_scan(turn, should_continue)
            return 0
        due = await self._db.read(watch_leases.read_seconds_to_next_due, names, scheduled)
        return SCAN_IDLE_S if due is None else min(max(due, 0.05), SCAN_IDLE_S)

    async def scan_watch(
        self, name: str, *, retry_failed: bool = False, should_continue: ShouldContinue = lambda: True
    ) -> WatchScanReport:
        """This watch, now, whatever its schedule.

        Raises:
            Busy: Somebody scans it.
        """
        await self._register_watches()
        turn = await self._db.run(
            watch_leases.lease_watch, name, lease_id=uuid4(), seconds=self._lease_s, worker=self._worker
        )
        if turn is None:
            raise Busy(f"{name} is being scanned already")
        came = await self._run_scan(turn, should_continue, again=retry_failed)
        files = await self._db.read(watch_files.list_files_of_scan, name, turn.began, SCAN_FILES_REPORTED_MAX)
        return WatchScanReport(self._watches[name], came, files)

    async def _register_watches(self) -> None:
        if not self._is_registered:
            await self._db.run(watch_leases.ensure_watches, self._watches)
            self._is_registered = True

    async def _run_scan(self, turn: WatchLease, going_on: ShouldContinue, *, again: bool = False) -> WatchScanResult:
        watch, started = self._watches[turn.name], time.monotonic()
        with bind_fields(watch=watch.name):
            async with self._hold_lease(turn, going_on) as still:
                came = await self._scan_safely(watch, turn, still, again=again)
            came = replace(came, problem=came.problem and make_storable_problem(came.problem))
            await self._db.run(watch_leases.finish_watch_scan, turn, came)
            if came.problem is not None:
                emit("watch.failed", watch=watch.name, error=came.problem)
            if came.looked:
                ms = round((time.monotonic() - started) * 1000, 1)
                emit("watch.scanned", watch=watch.name, found=came.found, submitted=came.submitted, ms=ms)
        return came

    async def _scan_safely(
        self, watch: Watch, turn: WatchLease, still: ShouldContinue, *, again: bool
    ) -> WatchScanResult:
        """Whatever is wrong is said of the watch; its files stay as they are."""
        every = watch.every or SCAN_IDLE_S
        try:
            return await self._scan_source(watch, turn, still, again=again)
        except Interrupted:
            return WatchScanResult(looked=False, delay=0.0 if turn.is_due else None, is_cut=True)
        except Exception as error:  # noqa: BLE001  what nobody has thought of is no reason to keep the watch, nor silent
            is_known = isinstance(error, TidemillError | OSError)
            problem = str(error) if is_known else f"the scan broke off: {type(error).__name__}: {error}"
            delay = compute_scan_delay(every, turn.failures) if turn.is_due else None
            return WatchScanResult(looked=turn.is_due, problem=problem, delay=delay)

    async def _scan_source(
        self, watch: Watch, turn: WatchLease, still: ShouldContinue, *, again: bool
    ) -> WatchScanResult:
        if not still():
            raise Interrupted("nobody waits for it any more")
        to_move = await self._archiver.list_files_to_archive(watch)
        if not turn.is_due and (not to_move or not watch.can_move):
            problem = await self._archiver.archive_files(watch, None, to_move, still)
            return WatchScanResult(looked=False, problem=problem)
        async with self._open_source(watch) as inlet:
            inlet.should_continue = still
            moving = inlet if watch.can_move else None
            problem = await self._archiver.archive_files(watch, moving, to_move, still)
            if not turn.is_due:
                return WatchScanResult(looked=False, problem=problem)
            listing = await self._record_listing(watch, inlet, again=again)
            took = await self._submit_ready_files(watch, turn, inlet, listing, still)
        delay = 0.0 if took.has_more and took.problem is None else watch.every
        problem = problem or listing.problem or took.problem
        is_cut = took.has_more and not still()
        return WatchScanResult(True, problem, listing.accepted_count, took.submitted, delay, is_cut)

    async def _record_listing(self, watch: Watch, inlet: WatchSource, *, again: bool) -> SourceListing:
        """What is there, in the database: what is new, what has changed, what has vanished."""
        listing = await asyncio.to_thread(list_source_files, watch, inlet)
        whose = WatchScope(watch.name, watch.source_key, frozenset(self._watches))
        for at in range(0, len(listing.entries), FILES_RECORDED_AT_ONCE):
            await self._db.run(
                watch_files.record_listing,
                whose,
                listing.entries[at : at + FILES_RECORDED_AT_ONCE],
                partial(_explain_waiting, watch),
            )
        if listing.is_complete:
            await self._db.run(watch_files.mark_missing_files, whose, listing.entries)
        if again:
            await self._db.run(watch_files.retry_failed_files, whose, listing.entries, RETRIED_AFTER_FAILURE_MESSAGE)
        return listing

    async def _submit_ready_files(
        self, watch: Watch, turn: WatchLease, inlet: WatchSource, listing: SourceListing, still: ShouldContinue
    ) -> SubmittedFiles:
        most = self._settings.scan_max_files
        whose, wait_s = WatchScope(watch.name, watch.source_key), watch.stable_for
        files = await self._db.run(
            watch_files.list_ready_files, whose, turn.began, stable_for=wait_s, marked=listing.marked_paths, limit=most
        )
        if not files:
            return SubmittedFiles()
        order = await self._submitter.prepare_watch(watch)
        bounds = FetchLimits(self._settings.max_file_size_mb << 20, still, self._settings.remote_url_timeout)
        took = await self._submitter.submit_files(order, inlet, files, bounds)
        return replace(took, has_more=took.has_more or len(files) == most)

    @contextlib.asynccontextmanager
    async def _open_source(self, watch: Watch) -> AsyncIterator[WatchSource]:
        inlet = await asyncio.to_thread(open_watch_source, watch, self._settings)
        try:
            yield inlet
        finally:
            await asyncio.to_thread(inlet.close)

    @contextlib.asynccontextmanager
    async def _hold_lease(self, turn: WatchLease, going_on: ShouldContinue) -> AsyncIterator[ShouldContinue]:
        """The right to the watch is kept while the scan goes on; without it, nothing further is begun."""
        is_ours = True

        async def extend_lease() -> None:
            nonlocal is_ours
            while is_ours:
                await asyncio.sleep(self._lease_s / 3)
                is_ours = await self._db.run(watch_leases.extend_watch_lease, turn, self._lease_s)

        keeper = asyncio.create_task(extend_lease())
        try:
            yield lambda: is_ours and going_on()
        finally:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper


def _explain_waiting(watch: Watch, entry: ListedFile) -> str:
    """What a file waits for."""
    if watch.marker is not None:
        return WAITS_FOR_MARKER_MESSAGE
    return WAITS_FOR_CONTENT_MESSAGE if entry.size == 0 else WAITS_UNTIL_STABLE_MESSAGE


def load_watches(runtime: Runtime) -> Mapping[str, Watch]:
    """The watches of ``tidemill.toml``; InvalidSettings with every mistake, also where they contradict the settings."""
    from tidemill.config_sections import raise_if_invalid  # noqa: PLC0415  most processes declare no watches
    from tidemill.watches.config import parse_watches  # noqa: PLC0415

    settings = runtime.settings
    watches = load_section(settings.config, lambda document: parse_watches(document, runtime.file_tasks))
    problems, folders = [], {}
    for watch in watches.values():
        if isinstance(watch.source, FolderAddress):
            root = settings.sources.get(watch.source.root)
            if root is None:
                known = ", ".join(sorted(settings.sources)) or "none"
                problems.append(
                    f"watches.{watch.name}.source: TIDEMILL_SOURCES has no {watch.source.root!r}; it has: {known}"
                )
            else:
                folders[watch.name] = (root / watch.source.path).resolve()
        try:
            validate_layout(dict(watch.layout))
        except InvalidInput as error:
            problems.append(f"watches.{watch.name}.layout: {error}")
    problems += find_overlaps(watches.values(), folders)
    raise_if_invalid("watches", problems)
    return watches


def make_watch_scanner(runtime: Runtime, worker: str | None = None) -> WatchScanner:
    """The scanner of a worker; without its id, that of an HTTP service."""
    submitter = WatchFileSubmitter(runtime)
    watches = runtime.get(load_watches)
    return WatchScanner(runtime.db, runtime.settings, watches, submitter, worker=worker or f"service-{os.getpid()}")


def make_worker_loops(runtime: Runtime, worker: str) -> list[Loop]:
    """The loop that scans watches, unless the settings turn it off."""
    return [WatchScanLoop(make_watch_scanner(runtime, worker))] if runtime.settings.scan_watches else []


class WatchScanLoop(Loop):
    """Scans one watch after the other. A scan that is running ends soon after the loop is stopped."""

    name = "scan"

    def __init__(self, scanner: WatchScanner) -> None:
        super().__init__()
        self._scanner = scanner

    async def tick(self) -> float:
        return await self._scanner.scan_next(lambda: not self.is_stopping)
