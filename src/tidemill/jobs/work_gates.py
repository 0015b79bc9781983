"""Gates: bounded pools of threads for slow work of requests, with a limit per user.

Each type of work has its own threads, so that slow previews do not delay uploads and downloads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tidemill.core.errors import Busy, TidemillError, TooManyRequests
from tidemill.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")
GATE_WAIT_MAX_S = 10.0  # for a slot of the user, and for one of all slots
GATE_CALLS_PER_USER_MAX = 100  # running and waiting
UPLOAD_THREADS = 8
_upload_threads = ThreadPoolExecutor(UPLOAD_THREADS, "upload")  # idle threads cost nothing; they start on demand


async def run_in_upload_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a write to the blob store. Uploads have their own threads, because storage can be slow."""
    return await asyncio.wrap_future(_upload_threads.submit(function, *args, **kwargs))


class UserQueue:
    """The calls of one user at a gate: those that have a slot of the user, and those that wait for one."""

    def __init__(self, concurrency: int) -> None:
        self.slots = asyncio.Semaphore(concurrency)
        self.calls = 0


class WorkGate:
    """Runs a number of calls at a time, and fewer of one user. Further calls wait for a limited time."""

    def __init__(self, name: str, *, concurrency: int, per_user: int, wait_max_s: float) -> None:
        self._name = name
        self._per_user = per_user
        self._wait_max_s = wait_max_s
        self._threads = ThreadPoolExecutor(concurrency, name)
        self._slots = asyncio.Semaphore(concurrency)
        self._users: dict[int, UserQueue] = {}

    async def run(self, user_id: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in a thread. A call whose caller is cancelled keeps its slots until it ends.

        Raises:
            TooManyRequests: The user has too many calls in progress.
            Busy: All users together have too many calls in progress.
        """
        user = self._users.setdefault(user_id, UserQueue(self._per_user))
        busy_self = TooManyRequests(f"You have too many {self._name} in progress. Retry when one of them has ended.")
        busy_others = Busy(f"Too many {self._name} are in progress. Retry in a few seconds.")
        if user.calls >= GATE_CALLS_PER_USER_MAX:
            raise busy_self
        user.calls += 1
        held: list[asyncio.Semaphore] = []
        try:
            for slots, error in ((user.slots, busy_self), (self._slots, busy_others)):
                await self._acquire(slots, error)
                held.append(slots)
        except BaseException:
            self._end_call(user_id, user, held)
            raise
        call = self._threads.submit(function, *args, **kwargs)
        loop = asyncio.get_running_loop()

        def end_call(_: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._end_call, user_id, user, held)

        call.add_done_callback(end_call)
        return await asyncio.wrap_future(call)

    async def _acquire(self, slots: asyncio.Semaphore, error: TidemillError) -> None:
        try:
            async with asyncio.timeout(self._wait_max_s):
                await slots.acquire()
        except TimeoutError:
            raise error from None

    def _end_call(self, user_id: int, user: UserQueue, held: list[asyncio.Semaphore]) -> None:
        for slots in held:
            slots.release()
        user.calls -= 1
        if not user.calls:
            self._users.pop(user_id, None)


def make_inspection_gate(runtime: Runtime) -> WorkGate:
    settings = runtime.settings
    most, per_user = settings.file_readers, settings.file_readers_per_user
    return WorkGate("file inspections", concurrency=most, per_user=per_user, wait_max_s=GATE_WAIT_MAX_S)


def make_download_gate(runtime: Runtime) -> WorkGate:
    settings = runtime.settings
    most, per_user = settings.fetches, settings.fetches_per_user
    return WorkGate("downloads", concurrency=most, per_user=per_user, wait_max_s=GATE_WAIT_MAX_S)
