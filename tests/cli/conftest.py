"""The real command, against a throw-away database."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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
    """What a command printed."""

    out: str
    err: str


@dataclass
class Tidemill:
    """Runs `tidemill`; fails the test unless it ends with the code it should."""

    url: str
    folder: Path
    extra: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, code: int = 0, answer: str = "") -> Said:
        done = subprocess.run(
            self._argv(arguments),
            cwd=self.folder,
            env=self._env(),
            input=answer,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return Said(done.stdout, done.stderr)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on meanwhile; it is ended with the block."""
        pipe, argv = subprocess.PIPE, self._argv(arguments)
        with subprocess.Popen(argv, cwd=self.folder, env=self._env(), stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def _argv(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-c", "from tidemill.cli.main import main; main()", *arguments]

    def _env(self) -> dict[str, str]:
        ours = {"DATABASE_URL": self.url, "TIDEMILL_HOME": str(self.folder), "COLUMNS": "160"}
        return os.environ | ours | self.extra

    def refuses(self, *arguments: str) -> str:
        """The one line of a command that is refused."""
        said = self(*arguments, code=2)
        assert said.out == ""
        (line,) = said.err.splitlines()
        assert line.startswith("error: ")
        return line.removeprefix("error: ")

    def file(self, name: str, text: str | bytes) -> str:
        (self.folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    def stored(self) -> list[Path]:
        """The files that were kept."""
        return list(self.folder.glob("blobs/*"))


@pytest.fixture
def tidemill(tidemill_database: str, tmp_path: Path) -> Tidemill:
    (tmp_path / "app.py").write_text(APP)
    return Tidemill(tidemill_database, tmp_path)


@pytest.fixture
def mill(settings: Settings) -> Mill:
    """Rows say what becomes of them."""
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
