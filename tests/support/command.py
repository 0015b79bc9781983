"""Fixtures for tests that run the `tidemill` command with a temporary database."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.forks import MAIN, WIDTH, Forked
from tidemill import Fail, Item, Mill, NotFound
from tidemill.config import Settings

APP = """
from tidemill import *
mill = Mill()
@mill.handler("test")
async def run(item): ...
@mill.batch_handler("sparse", sparse=True)
async def whole(items): ...
"""


@dataclass
class Said:
    """The output of a command."""

    out: str
    err: str


@dataclass
class Tidemill:
    """Runs `tidemill`. A call fails the test if the exit code is not ``code``."""

    url: str
    folder: Path
    extra: dict[str, str] = field(default_factory=dict)
    anew: bool = False  # start a new interpreter for each command, as a shell does, instead of a fork

    def __call__(self, *arguments: str, code: int = 0, answer: str = "") -> Said:
        with self._started(arguments, stdin=subprocess.PIPE) as process:
            try:
                said = Said(*process.communicate(answer, timeout=60))
            finally:
                process.kill()
        assert process.returncode == code, f"{arguments} ended with {process.returncode}:\n{said.out}\n{said.err}"
        return said

    @contextmanager
    def running(self, *arguments: str, stdin: int | None = None) -> Iterator[subprocess.Popen[str]]:
        """Start a command, and kill it at the end of the block."""
        with self._started(arguments, stdin) as process:
            try:
                yield process
            finally:
                process.kill()

    def _started(self, arguments: tuple[str, ...], stdin: int | None = None) -> subprocess.Popen[str]:
        pipe, argv = subprocess.PIPE, [sys.executable, "-c", MAIN, *arguments]
        ours = {"DATABASE_URL": self.url, "TIDEMILL_HOME": str(self.folder)} | WIDTH
        env, start = os.environ | ours | self.extra, subprocess.Popen if self.anew else Forked
        return start(argv, cwd=self.folder, env=env, stdin=stdin, stdout=pipe, stderr=pipe, text=True)

    def refuses(self, *arguments: str) -> str:
        """Run a command that exits with 2, and return its one-line error."""
        said = self(*arguments, code=2)
        assert said.out == ""
        (line,) = said.err.splitlines()
        assert line.startswith("error: ")
        return line.removeprefix("error: ")

    def file(self, name: str, text: str | bytes) -> str:
        (self.folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    def stored(self) -> list[Path]:
        """Return the files in the blob store."""
        return list(self.folder.glob("blobs/*"))


@pytest.fixture
def tidemill(tidemill_database: str, tmp_path: Path) -> Tidemill:
    (tmp_path / "app.py").write_text(APP)
    return Tidemill(tidemill_database, tmp_path)


@pytest.fixture
def cli_mill(settings: Settings) -> Mill:
    """Return a mill with the kinds of the app. The field `as` of a row selects its outcome."""
    mill = Mill(settings)

    @mill.handler("test", max_attempts_not_found=1)
    async def run(item: Item) -> object:
        match item.input.get("as"):
            case "failed":
                raise Fail("it is bad", code=item.input.get("code", "bad"))
            case "not_found":
                raise NotFound
        return item.input

    @mill.batch_handler("sparse", sparse=True)
    async def whole(items: list[Item]) -> None: ...

    return mill
