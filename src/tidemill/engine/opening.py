"""Opening a source beside the loop: it may have to be fetched first, which takes long and must be stopped soon."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

from tidemill.domain.decide import describe
from tidemill.domain.errors import InvalidInput, TidemillError
from tidemill.domain.ports import Source
from tidemill.engine.context import Context
from tidemill.engine.corrected import corrected
from tidemill.store.ingest import IngestLease

StillOurs = Callable[[], Awaitable[bool]]
LOOKS = 2  # one alone may have met another statement on the same row


@asynccontextmanager
async def opened(context: Context, lease: IngestLease, still_ours: StillOurs) -> AsyncIterator[Source]:
    """The source, open. Raises Interrupted when the process stops meanwhile, or the source is not ours to read."""
    wanted = _Wanted(context)
    watching = asyncio.create_task(wanted.watch(still_ours))
    try:
        with reading():
            source = await asyncio.to_thread(context.open_source, lease.source, lease.checkpoint, wanted)
    finally:
        wanted.over = True
        watching.cancel()
        await asyncio.wait([watching])  # or it could take again what is given back next
    with closing(source):
        yield corrected(context.db, lease, source) if lease.source.get("fixes_of") else source


@contextmanager
def reading() -> Iterator[None]:
    """Whatever a reader stumbles over is the source's fault: it would stumble again, try after try, for ever."""
    try:
        yield
    except (TidemillError, OSError, UnicodeError):
        raise
    except Exception as error:
        raise InvalidInput(describe(error)) from error


class _Wanted:
    """Asked from the thread, answered by the loop."""

    def __init__(self, context: Context) -> None:
        self.over = False
        self._context = context

    def __call__(self) -> bool:
        return not self.over and not self._context.stopping

    async def watch(self, still_ours: StillOurs) -> None:
        misses = 0
        while misses < LOOKS and not self._context.stopping:
            await self._context.rest(self._context.settings.poll_ms / 1000)
            misses = 0 if await self._look(still_ours) else misses + 1
        self.over = True

    async def _look(self, still_ours: StillOurs) -> bool:
        try:
            return await still_ours()
        except Exception:  # noqa: BLE001  a database that does not answer is no reason to stop
            return True
