"""Files whose rows are stored, or never will be, are put away: after that is known, and never before."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from tidemill.connectors.inlets import Inlet
from tidemill.domain.errors import InvalidInput, StoreDenied, StoreUnavailable, UnknownFile
from tidemill.domain.watching import Entry, FileState, Watch, WatchFile
from tidemill.domain.watching.decide import settled
from tidemill.domain.watching.names import put_away, with_suffix
from tidemill.store import watch_files
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

AT_ONCE = 500
SUBMITTED, PERSISTED, PROCESSED = FileState.SUBMITTED, FileState.PERSISTED, FileState.PROCESSED
REJECTED, FAILED = FileState.REJECTED, FileState.FAILED
ENDS = {PERSISTED: PROCESSED, REJECTED: FAILED}
REPLACED = "it was replaced by another one meanwhile, which is a file of its own"
VANISHED = "it was gone before it could be put away"


class Settler:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def decide(self, watch: Watch) -> list[WatchFile]:
        """Ask the jobs of all files that wait for theirs; which files are to be put away."""
        to_move: list[WatchFile] = []
        after = 0
        while found := await self._db.run(watch_files.unsettled, watch.name, after=after, limit=AT_ONCE):
            for file, facts in found:
                if file.state is not SUBMITTED:
                    to_move.append(file)
                elif (end := settled(facts)) is not None:
                    state, why = end
                    if await self._db.run(watch_files.set_state, file, state, why, before=(SUBMITTED,)):
                        to_move.append(replace(file, state=state, note=why))
            after = found[-1][0].id
        return to_move

    async def put_away(
        self, watch: Watch, inlet: Inlet | None, files: list[WatchFile], going_on: Callable[[], bool]
    ) -> str | None:
        """Move each; what is wrong with the first that cannot be moved. The others go on."""
        problem = None
        for file in files:
            if not going_on():
                return problem
            try:
                note = await self._move(watch, inlet, file)
            except (StoreDenied, StoreUnavailable, InvalidInput, UnknownFile, OSError) as error:
                await self._db.run(watch_files.set_note, file, f"it cannot be put away: {error}")
                problem = problem or f"{file.path} cannot be put away: {error}"
                continue
            await self._end(file, note)
        return problem

    async def _end(self, file: WatchFile, note: str | None) -> None:
        state = ENDS[file.state]
        why = "; ".join(word for word in (file.note if file.state is REJECTED else None, note) if word) or None
        if await self._db.run(watch_files.set_state, file, state, why, before=(file.state,)):
            emit("watch.settled", watch=file.watch, path=file.path, state=state, job=file.job_id, reason=why)

    async def _move(self, watch: Watch, inlet: Inlet | None, file: WatchFile) -> str | None:
        """A word on what was not as it usually is."""
        if inlet is None or file.source != watch.key:
            return None  # only remembered; or the watch looks elsewhere by now
        marker = await self._marker(watch, inlet, file)  # looked at first: it is of what is found afterwards
        now = await asyncio.to_thread(inlet.look, file.path)
        note = None
        if now is None and not await self._is_moved(inlet, file):
            note = VANISHED
        elif (now is not None and not now.is_like(file.entry)) or not await self._put(watch, inlet, file):
            return REPLACED
        if marker is not None:
            await self._put_marker(watch, inlet, file, marker)
        return note

    async def _is_moved(self, inlet: Inlet, file: WatchFile) -> bool:
        return file.moved_to is not None and await asyncio.to_thread(inlet.look, file.moved_to) is not None

    async def _put(self, watch: Watch, inlet: Inlet, file: WatchFile) -> bool:
        """False if another version has its name by now, and keeps it."""
        wanted = put_away(_folder(watch, file), file.path)
        target = file.moved_to or await self._free(inlet, wanted, file.id)
        target = await self._db.run(watch_files.reserve, file, target)
        try:
            is_put = await asyncio.to_thread(inlet.move, file.entry, target)
        except FileExistsError:  # somebody put another one there after we had looked
            target = with_suffix(wanted, file.id)
            await self._db.run(watch_files.reserve_anew, file, target)
            is_put = await asyncio.to_thread(inlet.move, file.entry, target)
        if not is_put:
            await self._db.run(watch_files.reserve_anew, file, None)
        return is_put

    async def _free(self, inlet: Inlet, target: str, mark: int) -> str:
        taken = await asyncio.to_thread(inlet.look, target) is not None
        return with_suffix(target, mark) if taken else target

    async def _marker(self, watch: Watch, inlet: Inlet, file: WatchFile) -> Entry | None:
        return None if watch.marker is None else await asyncio.to_thread(inlet.look, f"{file.path}{watch.marker}")

    async def _put_marker(self, watch: Watch, inlet: Inlet, file: WatchFile, marker: Entry) -> None:
        """One that is another's by now stays."""
        target = await self._free(inlet, put_away(_folder(watch, file), marker.path), file.id)
        await asyncio.to_thread(inlet.move, marker, target)


def _folder(watch: Watch, file: WatchFile) -> str:
    return watch.processed if file.state is PERSISTED else watch.failed
