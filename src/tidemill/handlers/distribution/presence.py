"""Whether files are still there. Many of one folder are looked for at once, and the look is good for a moment."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from tidemill.connectors.blobs import Blobs
from tidemill.connectors.blobs.listing import Listing, list_folder
from tidemill.handlers.together import Together

T = TypeVar("T")
WORTH_A_LISTING = 8  # files of one folder that are asked for together
KEPT = 16  # listings


class Presence:
    """A file that is gone since the last look may be said to be there, for seconds; never the reverse."""

    def __init__(self, blobs: Blobs, threads: Executor) -> None:
        self._blobs = blobs
        self._threads = threads
        self._listings: dict[str, Listing] = {}
        self._together: Together[str, bool] = Together(self._look)

    async def has(self, name: str) -> bool:
        listing = self._fresh(_folder(name))
        return (listing is not None and name in listing.names) or await self._together.ask(name)

    async def _look(self, names: Sequence[str]) -> list[bool]:
        by_folder: dict[str, list[str]] = defaultdict(list)
        for name in names:
            by_folder[_folder(name)].append(name)
        found = await asyncio.gather(*(self._in_folder(folder, asked) for folder, asked in by_folder.items()))
        here = set[str]().union(*found)
        return [name in here for name in names]

    async def _in_folder(self, folder: str, names: list[str]) -> set[str]:
        if len(names) >= WORTH_A_LISTING and self._fresh(folder) is None:
            self._keep(folder, await self._do(partial(list_folder, self._blobs, folder, names)))
        listing = self._fresh(folder)
        known = listing.names if listing is not None else frozenset()
        # What a listing does not have may be younger than it.
        others = [name for name in names if name not in known]
        answers = await asyncio.gather(*(self._do(partial(self._blobs.has, name)) for name in others))
        return {*known.intersection(names)} | {name for name, is_here in zip(others, answers, strict=True) if is_here}

    def _fresh(self, folder: str) -> Listing | None:
        listing = self._listings.get(folder)
        return listing if listing is not None and listing.is_good else None

    def _keep(self, folder: str, listing: Listing) -> None:
        self._listings.pop(folder, None)
        self._listings[folder] = listing
        while len(self._listings) > KEPT:
            del self._listings[next(iter(self._listings))]

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
