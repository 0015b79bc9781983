"""Watches on real sources, with scans and workers that run when the test calls them."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import rows
from tidemill import Item, Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.config import Settings, SourceFolder
from tidemill.store import workers
from tidemill.store.database import Database
from tidemill.testing import drain
from tidemill.watches import watch_records
from tidemill.watches.file_state import FileState, WatchFile
from tidemill.watches.scanner import WatchScanner, WatchScanReport, make_watch_scanner

ROWS = "email,name\nada@x.org,Ada\nbob@x.org,Bob\n"
TABLE = "CREATE TABLE public.people (email text PRIMARY KEY, name text NOT NULL)"
ECHO = 'job = { kind = "echo" }'
IMPORT = 'import = { resource = "public.people" }'


@dataclass
class Scene:
    """A database, a local folder ``inbox`` and declared watches."""

    db: Database
    settings: Settings
    mill: Mill
    inbox: Path
    _declared: dict[str, str] = field(default_factory=dict)

    def declare(self, *lines: str, name: str = "nightly", source: str = '"inbox"', wait: bool = False) -> None:
        """Declare a watch on ``source``. Unless ``wait``, a file is complete when a second scan finds it unchanged."""
        stability = "" if wait or any(line.startswith("marker") for line in lines) else 'stable_for = "0s"\n'
        text = f"[watches.{name}]\nsource = {source}\n{stability}" + "\n".join(lines)
        self._declared[name] = text + ("" if "job =" in text or "import =" in text else f"\n{ECHO}")
        Path(str(self.settings.config)).write_text("\n".join(self._declared.values()))

    def drop(self, name: str) -> None:
        del self._declared[name]

    def rename(self, name: str, to: str) -> None:
        lines = self._declared.pop(name).splitlines()
        self.declare(*lines[2:], name=to, wait=True)

    def scanner(self, worker: str = "w1", **changes: Any) -> WatchScanner:
        settings = self.settings.model_copy(update=changes)
        return make_watch_scanner(make_runtime(self.db, settings), worker)

    async def scan(self, times: int = 1, name: str = "nightly", **options: Any) -> WatchScanReport:
        scanner = self.scanner()
        for _ in range(times):
            report = await scanner.scan_watch(name, **options)
        return report

    async def work(self) -> None:
        await drain(self.mill, db=self.db)

    async def whole_way(self) -> WatchScanReport:
        """Run all steps for the waiting files, from the first scan to the archive."""
        await self.scan(times=2)
        await self.work()
        return await self.scan()

    async def files(self, name: str = "nightly") -> dict[str, WatchFile]:
        """Return the latest version of each file by path."""
        page = await self.db.read(watch_records.list_watch_files, name, limit=500)
        fields = WatchFile.__slots__
        files = [WatchFile(**{name: row[name] for name in fields}) for row in reversed(page.items)]
        return {file.path: file for file in files}

    async def states(self, name: str = "nightly") -> dict[str, FileState]:
        return {path: file.state for path, file in (await self.files(name)).items()}

    async def jobs(self) -> int:
        return int((await rows(self.db, "SELECT count(*) FROM tidemill.job"))[0][0])

    async def items(self) -> list[Any]:
        return [row[0] for row in await rows(self.db, "SELECT input FROM tidemill.item ORDER BY job_id, seq")]

    def put(self, name: str, text: str | bytes = ROWS, *, mtime: int | None = None) -> Path:
        path = self.inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return path

    def stored(self) -> set[str]:
        return {path.name for path in Path(self.settings.blobs).iterdir() if path.suffix != ".tmp"}

    def there(self) -> list[str]:
        paths = (path for path in self.inbox.rglob("*") if path.is_file() or path.is_symlink())
        return sorted(path.relative_to(self.inbox).as_posix() for path in paths)


async def make_scene(db: Database, settings: Settings, folder: Path) -> Scene:
    inbox = folder / "inbox"
    inbox.mkdir()
    declared = folder / "tidemill.toml"
    declared.write_text("")
    settings = settings.model_copy(update={"sources": {"inbox": SourceFolder(path=inbox)}, "config": declared})
    mill = Mill(settings)

    @mill.handler("echo", max_attempts=1)
    async def echo(item: Item) -> Any:
        return item.input

    await db.run(workers.register_kinds, mill.registry.create_all())
    return Scene(db, settings, mill, inbox)


class Died(BaseException):
    """Simulates a killed process. A BaseException, so that the code under test does not catch it."""


def dies_at(target: Any, name: str, monkeypatch: Any, *, after: bool = False) -> None:
    """Make the next call of this function raise Died, before it runs or right ``after`` it."""
    real: Callable[..., Any] = getattr(target, name)

    def die(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        if after:
            real(*args, **kwargs)
        raise Died

    async def die_async(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        if after:
            await real(*args, **kwargs)
        raise Died

    monkeypatch.setattr(target, name, die_async if asyncio.iscoroutinefunction(real) else die)


__all__ = ["ECHO", "IMPORT", "ROWS", "TABLE", "Died", "Scene", "dies_at", "make_scene"]
