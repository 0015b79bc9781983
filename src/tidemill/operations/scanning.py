"""A scan: look at what a watch watches, take what is whole, put away what is stored. One scans a watch at a time."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import uuid4

from tidemill.config import Settings
from tidemill.connectors.inlets import Bounds, Inlet, open_inlet
from tidemill.domain.errors import Busy, Interrupted, TidemillError, Unknown
from tidemill.domain.identity import Principal
from tidemill.domain.watching import Entry, Watch, WatchFile
from tidemill.domain.watching.names import told
from tidemill.domain.watching.times import next_look
from tidemill.operations.listing import Listing, listing_of
from tidemill.operations.settling import Settler
from tidemill.operations.taking import Taker, Took
from tidemill.store import watch_files, watches
from tidemill.store.database import Database
from tidemill.store.watch_files import Whose
from tidemill.store.watches import Came, Turn
from tidemill.telemetry.events import bound, emit

NOTED_AT_ONCE = 1_000
TOLD_MAX = 500
IDLE_S = 5.0
WAITS = "it waits until it has stopped changing"
WAITS_FOR_CONTENT = "it is empty, and waits for content"
WAITS_FOR_MARKER = "it waits for its marker, which may not be older than it is"
NO_TIME_TO_LOOK = "there was no time to look at all of it: the next scan does"
NO_TIME_TO_TAKE = "there was no time to take all its files: the next scan goes on with them"
ONCE_MORE = "it failed before, and is tried once more"
GoingOn = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scan came to."""

    watch: Watch
    came: Came
    files: list[WatchFile] = field(default_factory=list)

    @property
    def problem(self) -> str | None:
        """For whoever asked for it: what is wrong with the watch, or that it did not come to an end."""
        if self.came.problem is not None or not self.came.is_cut:
            return self.came.problem
        return NO_TIME_TO_TAKE if self.came.looked else NO_TIME_TO_LOOK


class Scanner:
    """The watches of a process, and the way to scan them."""

    def __init__(
        self, db: Database, settings: Settings, declared: Mapping[str, Watch], taker: Taker, *, worker: str
    ) -> None:
        self._db = db
        self._settings = settings
        self._watches = dict(declared)
        self._taker = taker
        self._settler = Settler(db)
        self._worker = worker
        self._lease_s = settings.lock_floor_ms / 1000
        self._ensured = False

    @property
    def all(self) -> Mapping[str, Watch]:
        return self._watches

    def of(self, who: Principal) -> list[Watch]:
        """Those that somebody may scan and see: their own, or everybody's."""
        return [one for one in self._watches.values() if who.is_admin or one.owner in (who.name, str(who.user_id))]

    def find(self, name: str, who: Principal) -> Watch:
        """Somebody else's is not there."""
        for one in self.of(who):
            if one.name == name:
                return one
        raise Unknown(f"there is no watch {name!r}")

    async def turn(self, going_on: GoingOn = lambda: True) -> float:
        """Scan one watch whose turn it is; the seconds until somebody has to look again, 0 if at once."""
        if not self._watches:
            return IDLE_S * 12
        await self._ensure()
        names = list(self._watches)
        scheduled = [one.name for one in self._watches.values() if one.every is not None]
        turn = await self._db.run(
            watches.take_due, names, scheduled, lease_id=uuid4(), seconds=self._lease_s, worker=self._worker
        )
        if turn is not None:
            await self._scan(turn, going_on)
            return 0
        due = await self._db.run(watches.next_due, names, scheduled)
        return IDLE_S if due is None else min(max(due, 0.05), IDLE_S)

    async def scan(self, name: str, *, again: bool = False, going_on: GoingOn = lambda: True) -> Scanned:
        """This watch, now, whatever its schedule.

        Raises:
            Busy: Somebody scans it.
        """
        await self._ensure()
        turn = await self._db.run(
            watches.take_named, name, lease_id=uuid4(), seconds=self._lease_s, worker=self._worker
        )
        if turn is None:
            raise Busy(f"{name} is being scanned already")
        came = await self._scan(turn, going_on, again=again)
        files = await self._db.run(watch_files.of_scan, name, turn.began, TOLD_MAX)
        return Scanned(self._watches[name], came, files)

    async def _ensure(self) -> None:
        if not self._ensured:
            await self._db.run(watches.ensure, self._watches)
            self._ensured = True

    async def _scan(self, turn: Turn, going_on: GoingOn, *, again: bool = False) -> Came:
        watch, started = self._watches[turn.name], time.monotonic()
        with bound(watch=watch.name):
            async with self._kept(turn, going_on) as still:
                came = await self._tried(watch, turn, still, again=again)
            came = replace(came, problem=came.problem and told(came.problem))
            await self._db.run(watches.finish, turn, came)
            if came.problem is not None:
                emit("watch.failed", watch=watch.name, error=came.problem)
            if came.looked:
                ms = round((time.monotonic() - started) * 1000, 1)
                emit("watch.scanned", watch=watch.name, found=came.found, submitted=came.submitted, ms=ms)
        return came

    async def _tried(self, watch: Watch, turn: Turn, still: GoingOn, *, again: bool) -> Came:
        """Whatever is wrong is said of the watch; its files stay as they are."""
        every = watch.every or IDLE_S
        try:
            return await self._worked(watch, turn, still, again=again)
        except Interrupted:
            return Came(looked=False, delay=0.0 if turn.is_due else None, is_cut=True)
        except Exception as error:  # noqa: BLE001  what nobody has thought of is no reason to keep the watch, nor silent
            is_known = isinstance(error, TidemillError | OSError)
            problem = str(error) if is_known else f"the scan broke off: {type(error).__name__}: {error}"
            delay = next_look(every, turn.failures) if turn.is_due else None
            return Came(looked=turn.is_due, problem=problem, delay=delay)

    async def _worked(self, watch: Watch, turn: Turn, still: GoingOn, *, again: bool) -> Came:
        if not still():
            raise Interrupted("nobody waits for it any more")
        to_move = await self._settler.decide(watch)
        if not turn.is_due and (not to_move or not watch.can_move):
            problem = await self._settler.put_away(watch, None, to_move, still)
            return Came(looked=False, problem=problem)
        async with self._opened(watch) as inlet:
            inlet.going_on = still
            moving = inlet if watch.can_move else None
            problem = await self._settler.put_away(watch, moving, to_move, still)
            if not turn.is_due:
                return Came(looked=False, problem=problem)
            listing = await self._noted(watch, inlet, again=again)
            took = await self._taken(watch, turn, inlet, listing, still)
        delay = 0.0 if took.more and took.problem is None else watch.every
        problem = problem or listing.problem or took.problem
        is_cut = took.more and not still()
        return Came(True, problem, listing.wanted, took.submitted, delay, is_cut)

    async def _noted(self, watch: Watch, inlet: Inlet, *, again: bool) -> Listing:
        """What is there, in the database: what is new, what has changed, what has vanished."""
        listing = await asyncio.to_thread(listing_of, watch, inlet)
        whose = Whose(watch.name, watch.key, frozenset(self._watches))
        for at in range(0, len(listing.entries), NOTED_AT_ONCE):
            await self._db.run(watch_files.note, whose, listing.entries[at : at + NOTED_AT_ONCE], partial(_why, watch))
        if listing.is_whole:
            await self._db.run(watch_files.lose, whose, listing.entries)
        if again:
            await self._db.run(watch_files.again, whose, listing.entries, ONCE_MORE)
        return listing

    async def _taken(self, watch: Watch, turn: Turn, inlet: Inlet, listing: Listing, still: GoingOn) -> Took:
        most = self._settings.scan_max_files
        whose, wait_s = Whose(watch.name, watch.key), watch.stable_for
        files = await self._db.run(
            watch_files.ready, whose, turn.began, stable_for=wait_s, marked=listing.marked, limit=most
        )
        if not files:
            return Took()
        order = await self._taker.prepare(watch)
        bounds = Bounds(self._settings.max_file_size_mb << 20, still, self._settings.remote_url_timeout)
        took = await self._taker.take_all(order, inlet, files, bounds)
        return replace(took, more=took.more or len(files) == most)

    @contextlib.asynccontextmanager
    async def _opened(self, watch: Watch) -> AsyncIterator[Inlet]:
        inlet = await asyncio.to_thread(open_inlet, watch, self._settings)
        try:
            yield inlet
        finally:
            await asyncio.to_thread(inlet.close)

    @contextlib.asynccontextmanager
    async def _kept(self, turn: Turn, going_on: GoingOn) -> AsyncIterator[GoingOn]:
        """The right to the watch is kept while the scan goes on; without it, nothing further is begun."""
        is_ours = True

        async def keep() -> None:
            nonlocal is_ours
            while is_ours:
                await asyncio.sleep(self._lease_s / 3)
                is_ours = await self._db.run(watches.extend, turn, self._lease_s)

        keeper = asyncio.create_task(keep())
        try:
            yield lambda: is_ours and going_on()
        finally:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper


def _why(watch: Watch, entry: Entry) -> str:
    """What a file waits for."""
    if watch.marker is not None:
        return WAITS_FOR_MARKER
    return WAITS_FOR_CONTENT if entry.size == 0 else WAITS
