"""Files whose rows are stored, or never will be, are put away: after that is known, and never before."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from tidemill.core.errors import InvalidInput, StorageAccessDenied, StorageUnavailable, UnknownFile
from tidemill.store.database import Database
from tidemill.telemetry.events import emit
from tidemill.watches import watch_files
from tidemill.watches.file_names import add_name_suffix, build_archive_path
from tidemill.watches.file_state import FileState, ListedFile, WatchFile, decide_file_state
from tidemill.watches.sources.watch_source import WatchSource
from tidemill.watches.watch import Watch

UNSETTLED_FILES_PAGE_SIZE = 500
SUBMITTED, PERSISTED, PROCESSED = FileState.SUBMITTED, FileState.PERSISTED, FileState.PROCESSED
REJECTED, FAILED = FileState.REJECTED, FileState.FAILED
FINAL_STATE_AFTER = {PERSISTED: PROCESSED, REJECTED: FAILED}
REPLACED_MESSAGE = "it was replaced by another one meanwhile, which is a file of its own"
VANISHED_MESSAGE = "it was gone before it could be put away"


class FileArchiver:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def list_files_to_archive(self, watch: Watch) -> list[WatchFile]:
        """Ask the jobs of all files that wait for theirs; which files are to be put away."""
        to_move: list[WatchFile] = []
        after = 0
        while found := await self._db.run(
            watch_files.list_unsettled_files, watch.name, after=after, limit=UNSETTLED_FILES_PAGE_SIZE
        ):
            for file, facts in found:
                if file.state is not SUBMITTED:
                    to_move.append(file)
                elif (end := decide_file_state(facts)) is not None:
                    state, why = end
                    if await self._db.run(watch_files.set_file_state, file, state, why, before=(SUBMITTED,)):
                        to_move.append(replace(file, state=state, note=why))
            after = found[-1][0].id
        return to_move

    async def archive_files(
        self, watch: Watch, inlet: WatchSource | None, files: list[WatchFile], should_continue: Callable[[], bool]
    ) -> str | None:
        """Move each; what is wrong with the first that cannot be moved. The others go on."""
        problem = None
        for file in files:
            if not should_continue():
                return problem
            try:
                note = await self._move_file(watch, inlet, file)
            except (StorageAccessDenied, StorageUnavailable, InvalidInput, UnknownFile, OSError) as error:
                await self._db.run(watch_files.set_file_message, file, f"it cannot be put away: {error}")
                problem = problem or f"{file.path} cannot be put away: {error}"
                continue
            await self._finish_file(file, note)
        return problem

    async def _finish_file(self, file: WatchFile, note: str | None) -> None:
        state = FINAL_STATE_AFTER[file.state]
        why = "; ".join(word for word in (file.note if file.state is REJECTED else None, note) if word) or None
        if await self._db.run(watch_files.set_file_state, file, state, why, before=(file.state,)):
            emit("watch.settled", watch=file.watch, path=file.path, state=state, job=file.job_id, reason=why)

    async def _move_file(self, watch: Watch, inlet: WatchSource | None, file: WatchFile) -> str | None:
        """A word on what was not as it usually is."""
        if inlet is None or file.source != watch.source_key:
            return None  # only remembered; or the watch looks elsewhere by now
        marker = await self._find_marker(watch, inlet, file)  # looked at first: it is of what is found afterwards
        now = await asyncio.to_thread(inlet.find_entry, file.path)
        note = None
        if now is None and not await self._is_moved(inlet, file):
            note = VANISHED_MESSAGE
        elif (now is not None and not now.is_same_version(file.entry)) or not await self._move_to_archive(
            watch, inlet, file
        ):
            return REPLACED_MESSAGE
        if marker is not None:
            await self._move_marker(watch, inlet, file, marker)
        return note

    async def _is_moved(self, inlet: WatchSource, file: WatchFile) -> bool:
        return file.moved_to is not None and await asyncio.to_thread(inlet.find_entry, file.moved_to) is not None

    async def _move_to_archive(self, watch: Watch, inlet: WatchSource, file: WatchFile) -> bool:
        """False if another version has its name by now, and keeps it."""
        wanted = build_archive_path(_choose_archive_folder(watch, file), file.path)
        target = file.moved_to or await self._choose_free_path(inlet, wanted, file.id)
        target = await self._db.run(watch_files.reserve_archive_path, file, target)
        try:
            is_put = await asyncio.to_thread(inlet.move, file.entry, target)
        except FileExistsError:  # somebody put another one there after we had looked
            target = add_name_suffix(wanted, file.id)
            await self._db.run(watch_files.replace_archive_path, file, target)
            is_put = await asyncio.to_thread(inlet.move, file.entry, target)
        if not is_put:
            await self._db.run(watch_files.replace_archive_path, file, None)
        return is_put

    async def _choose_free_path(self, inlet: WatchSource, target: str, mark: int) -> str:
        taken = await asyncio.to_thread(inlet.find_entry, target) is not None
        return add_name_suffix(target, mark) if taken else target

    async def _find_marker(self, watch: Watch, inlet: WatchSource, file: WatchFile) -> ListedFile | None:
        return None if watch.marker is None else await asyncio.to_thread(inlet.find_entry, f"{file.path}{watch.marker}")

    async def _move_marker(self, watch: Watch, inlet: WatchSource, file: WatchFile, marker: ListedFile) -> None:
        """One that is another's by now stays."""
        target = await self._choose_free_path(
            inlet, build_archive_path(_choose_archive_folder(watch, file), marker.path), file.id
        )
        await asyncio.to_thread(inlet.move, marker, target)


def _choose_archive_folder(watch: Watch, file: WatchFile) -> str:
    return watch.processed if file.state is PERSISTED else watch.failed
