"""Runs commands with a runtime that the entry point of the command line provides."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer

from tidemill.core.errors import InvalidInput
from tidemill.terminal.command_options import is_option_on_command_line

if TYPE_CHECKING:  # `tidemill --help` imports this module and must not load a database driver
    from tidemill.runtime import Runtime

T = TypeVar("T")
BUILTIN_MILL_REFERENCE = "tidemill.app.mill:builtin_mill"
MILL_DEFAULT_HELP = "TIDEMILL_APP, or app in tidemill.toml"


class CommandHost(Protocol):
    """The interface through which commands of features use the application layer, which they must not import."""

    def open_runtime(self, app: str, *, migrate: bool, check: bool) -> "AbstractAsyncContextManager[Runtime]":
        """Open a runtime with a database and the declarations of the mill ``app``."""

    def ensure_worker(
        self, runtime: "Runtime", kind: str, app: str, processes: int
    ) -> AbstractAsyncContextManager[bool]:
        """Run a worker in this process during the block, unless a running worker already has the kind.

        Yield whether this process runs the worker.
        """

    async def register_mill_kind(self, runtime: "Runtime", app: str, kind: str) -> None:
        """Register a kind of the mill ``app``, so that its jobs can be submitted before a worker starts."""

    def list_mill_kinds(self, app: str) -> list[str]:
        """Return the kinds of the mill ``app``; raise InvalidInput if it cannot be loaded."""


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


def resolve_mill(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Return the mill of an option or argument; without one, that of TIDEMILL_APP or of the configuration file.

    Raises:
        InvalidInput: The mill of the environment or of the file cannot be loaded; the message names the source.
    """
    if ctx.resilient_parsing or is_option_on_command_line(ctx, str(param.name)):
        return value
    configured = find_configured_mill_and_source()
    if configured is None:
        return value
    reference, source = configured
    try:
        make_command_host().list_mill_kinds(reference)
    except InvalidInput as error:
        raise InvalidInput(f"{source}: {error}") from error
    return reference


def find_configured_mill_and_source() -> tuple[str, str] | None:
    """Return the mill of TIDEMILL_APP or of the configuration file, and the source of this value."""
    from tidemill.config import load_settings  # noqa: PLC0415  `tidemill --help` does not load the settings
    from tidemill.config_file import find_configured_app_and_source  # noqa: PLC0415  as above

    return find_configured_app_and_source(load_settings())


def silence_logs_unless_configured() -> None:
    """Keep log lines out of a command's own output, unless the environment sets a level."""
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
