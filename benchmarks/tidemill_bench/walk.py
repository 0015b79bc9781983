"""Trace one item through the code: files, functions, and calls between packages of tidemill.

``Mill.submit_async`` submits the item and ``tidemill.testing.drain`` runs it, in one process. A first item warms up the
imports, the database and the engine.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import tidemill
from tidemill import Item, Mill
from tidemill.config import load_settings
from tidemill.store.migrate import migrate_schema
from tidemill.store.open_database import open_database
from tidemill.testing import drain

PACKAGE_ROOT = f"{Path(tidemill.__file__).parent}/"


@dataclass
class WalkTrace:
    """The functions of tidemill that ran, and the calls between its packages.

    A coroutine that continues after a wait counts as a call.
    """

    functions: set[tuple[str, str, int]] = field(default_factory=set)  # file, name, line
    crossings: Counter[tuple[str, str]] = field(default_factory=Counter)  # from package, to package

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call; pass this method to ``sys.setprofile``."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE_ROOT) or code.co_name.startswith("<"):
            return
        path = code.co_filename.removeprefix(PACKAGE_ROOT)
        self.functions.add((path, code.co_qualname, code.co_firstlineno))
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE_ROOT):
            caller = caller.f_back
        if caller is not None:
            source = _get_package(caller.f_code.co_filename.removeprefix(PACKAGE_ROOT))
            if source != _get_package(path):
                self.crossings[source, _get_package(path)] += 1

    def build_report(self) -> dict[str, Any]:
        files = sorted({path for path, _, _ in self.functions})
        return {
            "files": len(files),
            "functions": len(self.functions),
            "crossings": self.crossings.total(),
            "functions_by_file": {
                path: sorted(name for other, name, _ in self.functions if other == path) for path in files
            },
            "crossings_by_packages": {f"{a} -> {b}": count for (a, b), count in self.crossings.most_common()},
        }


def _get_package(path: str) -> str:
    return path.split("/", maxsplit=1)[0]


def run_walk() -> dict[str, Any]:
    """Return the report on one item. The item runs in a thread, so that the command line is not among its callers."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(trace_one_item())).result()


async def trace_one_item() -> dict[str, Any]:
    """Return the report on one item that runs on a temporary embedded server."""
    with tempfile.TemporaryDirectory() as home:
        settings = load_settings().model_copy(update={"home": Path(home), "database_url": None, "config": None})
        async with open_database(settings, check=False) as db:
            await migrate_schema(db)
        mill = Mill(settings)

        @mill.handler("walk")
        async def walk(_: Item) -> str:
            return "done"

        await mill.submit_async("walk", ["warm-up"])
        await drain(mill)
        trace = WalkTrace()
        sys.setprofile(trace.profile)
        try:
            await mill.submit_async("walk", ["one"])
            await drain(mill)
        finally:
            sys.setprofile(None)
        await mill.shared_database.close_for_running_loop()
    return trace.build_report()
