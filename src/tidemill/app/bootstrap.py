"""Process startup: loads the mill, tunes the garbage collector, and provides commands with a runtime."""

import gc
import importlib
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidemill.app.mill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.config import load_settings
from tidemill.core.errors import InvalidInput, InvalidSettings
from tidemill.runtime import Runtime
from tidemill.store import workers
from tidemill.store.migrate import migrate_schema
from tidemill.store.open_database import open_database


def load_mill(reference: str) -> Mill:
    """Import the mill ``module:name``; the working directory is searched first.

    Raises:
        InvalidInput: The module cannot be imported, or the object is not a Mill.
        InvalidSettings: The settings of the environment, which a mill reads when it declares a handler, are invalid.
    """
    module_name, _, name = reference.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise InvalidInput(f'Module "{module_name}" not found. Use MODULE:NAME, such as app:mill.') from error
        raise InvalidInput(_format_import_error(module_name, error)) from error
    except InvalidSettings:
        raise  # the message lists the settings; a traceback of the module would not help
    except Exception as error:
        raise InvalidInput(_format_import_error(module_name, error)) from error
    name = name or "mill"
    if not hasattr(module, name):
        mills = [each for each, value in vars(module).items() if isinstance(value, Mill)]
        found = f"It has the mill {module_name}:{mills[0]}." if mills else "Add a mill: mill = Mill()."
        raise InvalidInput(f'Module "{module_name}" has no "{name}". {found}')
    mill = getattr(module, name)
    if not isinstance(mill, Mill):
        raise InvalidInput(f'"{reference}" is not a Mill. Use MODULE:NAME, such as app:mill.')
    return mill


def _format_import_error(module_name: str, error: Exception) -> str:
    """Describe an import error with the part of the traceback that belongs to the module."""
    trace = error.__traceback__
    while trace is not None and ("importlib" in (file := trace.tb_frame.f_code.co_filename) or file == __file__):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace, chain=False)
    return f'Cannot import "{module_name}":\n{"".join(lines).rstrip()}'


def relax_garbage_collector() -> None:
    """Exclude all current objects from garbage collection, and collect new ones less often.

    With the default threshold of 700 objects a worker loses a fifth of its throughput, and an API process pauses while
    the collector scans every imported module.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


COMMAND_DB_RETRY_BUDGET_S = 30.0


class LocalCommandHost:
    """Runs commands in this process, with settings from the environment."""

    @asynccontextmanager
    async def open_runtime(self, app: str, *, migrate: bool, check: bool) -> AsyncIterator[Runtime]:
        settings = load_settings()
        async with open_database(settings, check=check and not migrate, patience=COMMAND_DB_RETRY_BUDGET_S) as db:
            if migrate:
                await migrate_schema(db)
            yield make_runtime(db, settings, load_mill(app).registry)

    @asynccontextmanager
    async def ensure_worker(self, runtime: Runtime, kind: str, app: str, processes: int) -> AsyncIterator[bool]:
        if kind in await runtime.db.read(workers.list_live_kinds):
            yield False
            return
        from tidemill.app.worker import make_worker  # noqa: PLC0415  commands that need no worker start faster

        worker = make_worker(runtime.db, load_mill(app), app, processes)
        await worker.start()
        try:
            yield True
        finally:
            await worker.stop()

    async def register_mill_kind(self, runtime: Runtime, app: str, kind: str) -> None:
        await runtime.db.run(workers.register_kinds, [load_mill(app).registry.get(kind)])

    def list_mill_kinds(self, app: str) -> list[str]:
        return load_mill(app).registry.kinds()
