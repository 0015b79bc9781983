"""Archives files: moves stored files to the processed folder and rejected files to the failed folder."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from tidemill.core.errors import InvalidInput, StorageAccessDenied, StorageUnavailable, UnknownFile
from tidemill.failpoints import failpoint
from tidemill.store.database import Database
from tidemill.telemetry.events import emit
from tidemill.watches import watch_records
from tidemill.watches.file_names import add_mark_before_extension, join_archive_path
from tidemill.watches.file_state import FileState, ListedFile, WatchFile, decide_file_state
from tidemill.watches.sources.watch_source import WatchSource
from tidemill.watches.watch import Watch

UNSETTLED_FILES_PAGE_SIZE = 500
SUBMITTED, PERSISTED, PROCESSED = FileState.SUBMITTED, FileState.PERSISTED, FileState.PROCESSED
REJECTED, FAILED = FileState.REJECTED, FileState.FAILED
FINAL_STATE_AFTER = {PERSISTED: PROCESSED, REJECTED: FAILED}
REPLACED_MESSAGE = "Not archived: a new version replaced the file. A separate job processes the new version."
VANISHED_MESSAGE = "Not archived: the file was removed from the source"


class FileArchiver:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def update_states_and_list_files_to_archive(self, watch: Watch) -> list[WatchFile]:
        """Update the states of files whose jobs have read them, and return the files to archive."""
        to_move: list[WatchFile] = []
        after = 0
        while page := await self._db.run(
            watch_records.list_unsettled_files, watch.name, after=after, limit=UNSETTLED_FILES_PAGE_SIZE
        ):
            for file, job_state in page:
                if file.state is not SUBMITTED:
                    to_move.append(file)
                elif (decision := decide_file_state(job_state)) is not None:
                    state, reason = decision
                    if await self._db.run(
                        watch_records.change_file_state_if_in_states, file, state, reason, before=(SUBMITTED,)
                    ):
                        to_move.append(replace(file, state=state, note=reason))
            after = page[-1][0].id
        return to_move

    async def archive_and_settle_files(
        self, watch: Watch, source: WatchSource | None, files: list[WatchFile], should_continue: Callable[[], bool]
    ) -> str | None:
        """Move the files. Return the problem of the first file that cannot be moved, or None."""
        problem = None
        for file in files:
            if not should_continue():
                return problem
            try:
                note = await self._archive_file_and_marker(watch, source, file)
            except (StorageAccessDenied, StorageUnavailable, InvalidInput, UnknownFile, OSError) as error:
                await self._db.run(watch_records.set_file_note, file, f"Cannot archive the file: {error}")
                problem = problem or f'Cannot archive "{file.path}": {error}'
                continue
            failpoint("watch.file_archived")
            await self._set_final_state(file, note)
        return problem

    async def _set_final_state(self, file: WatchFile, note: str | None) -> None:
        state = FINAL_STATE_AFTER[file.state]
        reason = "; ".join(text for text in (file.note if file.state is REJECTED else None, note) if text) or None
        if await self._db.run(watch_records.change_file_state_if_in_states, file, state, reason, before=(file.state,)):
            emit("watch.settled", watch=file.watch, path=file.path, state=state, job=file.job_id, reason=reason)

    async def _archive_file_and_marker(self, watch: Watch, source: WatchSource | None, file: WatchFile) -> str | None:
        """Move the file and its marker. Return a message if the file is gone or replaced, else None."""
        if source is None or file.source != watch.source_key:
            return None  # the watch does not move files, or its source has changed
        marker = await self._find_marker(watch, source, file)  # before the file, so that a newer marker stays
        now = await asyncio.to_thread(source.find_file, file.path)
        note = None
        if now is None and not await self._is_already_archived(source, file):
            note = VANISHED_MESSAGE
        elif (now is not None and not now.is_same_version(file.listed_file)) or not await self._move_to_archive(
            watch, source, file
        ):
            return REPLACED_MESSAGE
        if marker is not None:
            await self._move_marker(watch, source, file, marker)
        return note

    async def _is_already_archived(self, source: WatchSource, file: WatchFile) -> bool:
        return file.moved_to is not None and await asyncio.to_thread(source.find_file, file.moved_to) is not None

    async def _move_to_archive(self, watch: Watch, source: WatchSource, file: WatchFile) -> bool:
        """Move the file. Return False if a new version has replaced it; the new version stays."""
        preferred = join_archive_path(_choose_archive_folder(watch, file), file.path)
        target = file.moved_to or await self._choose_free_path(source, preferred, file.id)
        target = await self._db.run(watch_records.reserve_archive_path, file, target)
        failpoint("watch.path_reserved")
        try:
            is_moved = await asyncio.to_thread(source.move, file.listed_file, target)
        except FileExistsError:  # another process created the target after the check for a free path
            target = add_mark_before_extension(preferred, file.id)
            await self._db.run(watch_records.replace_archive_path, file, target)
            is_moved = await asyncio.to_thread(source.move, file.listed_file, target)
        if not is_moved:
            await self._db.run(watch_records.replace_archive_path, file, None)
        return is_moved

    async def _choose_free_path(self, source: WatchSource, target: str, mark: int) -> str:
        taken = await asyncio.to_thread(source.find_file, target) is not None
        return add_mark_before_extension(target, mark) if taken else target

    async def _find_marker(self, watch: Watch, source: WatchSource, file: WatchFile) -> ListedFile | None:
        return None if watch.marker is None else await asyncio.to_thread(source.find_file, f"{file.path}{watch.marker}")

    async def _move_marker(self, watch: Watch, source: WatchSource, file: WatchFile, marker: ListedFile) -> None:
        """Move the marker, unless it has changed: then it belongs to a new version of the file and stays."""
        target = await self._choose_free_path(
            source, join_archive_path(_choose_archive_folder(watch, file), marker.path), file.id
        )
        await asyncio.to_thread(source.move, marker, target)


def _choose_archive_folder(watch: Watch, file: WatchFile) -> str:
    return watch.processed if file.state is PERSISTED else watch.failed
