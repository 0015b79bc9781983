"""Runs commands with a runtime that the entry point of the command line provides."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:  # `tidemill --help` imports this module and must not load a database driver
    from tidemill.runtime import Runtime

T = TypeVar("T")
BUILTIN_MILL_REFERENCE = "tidemill.app.mill:builtin_mill"


class CommandHost(Protocol):
    """The interface through which commands of features use the application layer, which they must not import."""

    def open_runtime(self, app: str, *, migrate: bool, check: bool) -> "AbstractAsyncContextManager[Runtime]":
        """Open a runtime with a database and the declarations of the mill ``app``."""

    def ensure_worker(
        self, runtime: "Runtime", kind: str, app: str, processes: int
    ) -> AbstractAsyncContextManager[None]:
        """Run a worker in this process during the block, unless a running worker already has the kind."""

    async def save_kind_options(self, runtime: "Runtime", app: str, kind: str) -> None:
        """Register a kind of the mill ``app``, so that its jobs can be submitted before a worker starts."""


_make_host: Callable[[], CommandHost] | None = None


def set_command_host_factory(make_host: Callable[[], CommandHost]) -> None:
    global _make_host  # noqa: PLW0603  one process runs one command
    _make_host = make_host


def make_command_host() -> CommandHost:
    if _make_host is None:
        raise RuntimeError("Commands can run only from the tidemill command line")
    return _make_host()


def run_with_runtime(
    action: "Callable[[Runtime], Awaitable[T]]",
    *,
    app: str = BUILTIN_MILL_REFERENCE,
    migrate: bool = False,
    check: bool = True,
) -> T:
    """Run the body of a command.

    The schema must be current. With ``migrate`` it is migrated first; without ``check`` it may be missing.
    """

    async def main() -> T:
        async with make_command_host().open_runtime(app, migrate=migrate, check=check) as runtime:
            return await action(runtime)

    return asyncio.run(main())


def silence_logs() -> None:
    """Keep log lines out of a command's own output, unless the environment sets a level."""
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
