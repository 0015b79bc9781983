"""The tutorial runs as written: its files and commands, in order, in an empty folder with an empty home."""

import base64
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from support import require

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
SCREENSHOTS = ROOT / "build" / "screenshots"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
COMMAND_TIMEOUT_S = 90
SERVER = "tidemill up"
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JOB_KEY = re.compile(r"J\d{8}_\d{6}")


@dataclass(frozen=True)
class Block:
    language: str
    file: str
    text: str


def list_blocks() -> list[Block]:
    return [Block(*match) for match in BLOCK.findall(TUTORIAL.read_text())]


def normalize(output: str) -> list[str]:
    """Remove what differs between two runs: keys, ports, folders, links, times, log lines and trailing spaces."""
    output = JOB_KEY.sub("JOB", output)
    output = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", output)
    output = re.sub(r"/sign-in/\S+", "/sign-in/LINK", output)
    output = re.sub(r"host=\S+", "host=FOLDER", output)
    output = re.sub(r'"at": "[^"]+", "duration_ms": \d+', '"at": "TIME", "duration_ms": 0', output)
    return [line.rstrip() for line in output.splitlines() if line.strip() and not line.startswith('{"timestamp"')]


class Reader:
    """A person who follows the tutorial: saves the files, types the commands, and keeps one command running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.log = folder / "up.log"
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        keep["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{keep['PATH']}"
        self.environment = keep | {"HOME": str(folder), "TIDEMILL_HTTP_PORT": "0", "COLUMNS": "120"}
        self.server: subprocess.Popen[bytes] | None = None
        self.job_keys: list[str] = []

    def run(self, command: str) -> str:
        """Return what a command prints on a terminal, except the progress bar."""
        if command.startswith(SERVER):
            return self._start_server(command)
        for shown, real in zip(self._shown_keys(), self.job_keys, strict=False):
            command = command.replace(shown, real)
        run = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        assert run.returncode in (0, 1), run.stdout  # an import with failed rows exits with 1
        self.job_keys += [key for key in dict.fromkeys(JOB_KEY.findall(run.stdout)) if key not in self.job_keys]
        return run.stdout

    def _shown_keys(self) -> list[str]:
        return list(dict.fromkeys(JOB_KEY.findall(TUTORIAL.read_text())))

    def _start_server(self, command: str) -> str:
        self.stop_server()
        self.log.write_bytes(b"")
        with self.log.open("ab") as log:
            self.server = subprocess.Popen(
                shlex.split(command), cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while "Ctrl-C" not in self.log.read_text():
            assert self.server.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return self.log.read_text()

    def stop_server(self) -> None:
        """Press Ctrl-C."""
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)
            self.server.wait(COMMAND_TIMEOUT_S)
            self.server = None

    def read_server_line(self, name: str) -> str:
        (value,) = re.findall(rf"^ *{name}  (\S+)", self.log.read_text(), re.MULTILINE)
        return str(value)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    one = Reader(tmp_path)
    yield one
    one.stop_server()


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    require(BROWSERS[0], path)
    flags = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.getuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser: Browser = await playwright.chromium.launch(executable_path=path, args=flags)
        yield await browser.new_page(viewport={"width": 1280, "height": 640})
        await browser.close()


async def save_screenshot(page: Page, name: str) -> None:
    """Save the picture that the tutorial shows, as WebP."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.emulate_media(color_scheme="light", reduced_motion="reduce")
    session = await page.context.new_cdp_session(page)
    picture = await session.send("Page.captureScreenshot", {"format": "webp", "quality": 80})
    (SCREENSHOTS / f"{name}-light.webp").write_bytes(base64.b64decode(picture["data"]))
    await session.detach()


async def look_at_step(reader: Reader, page: Page, command: str) -> None:
    """Check the web UI at the steps where the tutorial opens it."""
    if command == SERVER:
        await page.goto(reader.read_server_line("sign in"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("link", name="Imports")).to_be_visible()
    elif command.startswith("tidemill import"):
        await page.get_by_role("link", name="Imports").click()
        await page.get_by_role("link", name=reader.job_keys[0]).click()
        await expect(page.get_by_text("NLD").first).to_be_visible()
        await expect(page.get_by_text("must have at most 2 characters").first).to_be_visible()
        await save_screenshot(page, "tutorial-errors")
    elif command.startswith("tidemill fix"):
        notice = page.get_by_text("All rows were imported")
        await expect(notice).to_be_visible()
        size = await notice.locator("svg").bounding_box()
        assert size is not None
        assert size["height"] < 40
        await save_screenshot(page, "tutorial-completed")


async def test_tutorial_prints_the_output_it_shows(reader: Reader, page: Page) -> None:
    printed = ""
    started = time.monotonic()
    for block in list_blocks():
        if block.file:
            (reader.folder / block.file).write_text(block.text)
        elif block.language == "text":
            assert normalize(printed) == normalize(block.text)
        elif block.language == "sh" and "pip install" not in block.text:
            command = block.text.strip()
            printed = reader.run(command)
            await look_at_step(reader, page, command)
    assert time.monotonic() - started < 600, "The tutorial promises ten minutes"


def test_tutorial_handler_has_at_most_ten_lines_of_code() -> None:
    (handler,) = [block for block in list_blocks() if block.file == "app.py"]
    assert len([line for line in handler.text.splitlines() if line.strip()]) <= 10
