"""Runs the code blocks of a documentation page in order, as a reader does, and compares the output that the page shows.

The blocks of a page share one folder, one database and one shell:

- A block after "Save this as `NAME`:" becomes that file. After "Add this to `NAME`:" it is appended to the file.
- ``sh`` runs in bash. Variables stay set for the next block. A block that starts a server, such as ``tidemill up``,
  keeps running until the end of the page.
- ``python`` runs as a script, ``sql`` runs in the database.
- ``http`` shows headers and does not run.
- ``text`` and ``json`` after one of these is its output. Ids, keys, times and durations may differ; a later block may
  use an id that was shown. A line of three dots is any number of lines.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psycopg

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r"(?P<intro>[^\n]*(?:\n[^\n]+)*)\n\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
HEADING = re.compile(r"^#+ ", re.MULTILINE)
FENCE = re.compile(r"^```", re.MULTILINE)
SAVED = re.compile(r"\b[Ss]ave .*?as\s`(?P<name>[^`]+)`[^`]*:$", re.DOTALL)
ADDED = re.compile(r"\b[Aa]dd .*?to\s`(?P<name>[^`]+)`[^`]*:$", re.DOTALL)
OUTPUT_LANGUAGES = ("text", "json")
FILE_LANGUAGES = ("csv", "html", "ini")
SERVERS = {  # a command that runs until it is interrupted -> a pattern of its output when it is ready
    "tidemill up": "Press Ctrl-C to stop",
    "tidemill serve": "Listening at",
    "tidemill worker": "worker.started",
    "uvicorn": "Uvicorn running on",
    "curl -N": ": open",
    "python manage.py runserver": "Quit the server",
    "python manage.py tidemill worker": "worker.started",
}
PORTS = ("8484", "8000", "9000")  # of Tidemill, of the reader's application, and of the service that handlers call
LOAD_STATE = 'set -a; [ -f "$STATE" ] && . "$STATE"\n'  # the variables and functions of the previous blocks
COMMAND_TIMEOUT_S, SERVER_TIMEOUT_S = 90.0, 60.0
IDENTIFIER = re.compile(r"\bJ\d{8}_\d{6,}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
VARIABLE_PARTS = (
    (IDENTIFIER, "ID"),
    (re.compile(r"\btm_[0-9a-f]{8}(_[0-9a-f]{48})?\b"), "API_KEY"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "REQUEST_ID"),
    (re.compile(r"(?<=[#?/=])[0-9A-Za-z_-]{32,}\b"), "TOKEN"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|seconds)\b"), "DURATION"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
    (re.compile(r"[ \t]+"), " "),  # the width of a column depends on its values
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, with the paragraph before it."""

    intro: str
    language: str
    text: str
    line: int
    starts_section: bool = False  # a heading is between the previous block and this one

    @property
    def first_line(self) -> str:
        return self.text.split("\n", 1)[0]

    @property
    def is_output(self) -> bool:
        return self.language in OUTPUT_LANGUAGES and not SAVED.search(self.intro)


def read_blocks(page: Path) -> list[Block]:
    text = page.read_text()
    blocks, end = [], 0
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("text"))
        starts_section = HEADING.search(text, end, found.start("text")) is not None
        blocks.append(Block(found["intro"], found["language"], found["text"], line, starts_section))
        end = found.end()
    fences = len(FENCE.findall(text))
    assert 2 * len(blocks) == fences, f"{page.name}: put an empty line and a language before each block"
    return blocks


def normalize(output: str, variable_parts: tuple[str, ...] = ()) -> list[str]:
    """Return the lines of an output without the parts that differ between two runs."""
    for pattern, name in (*VARIABLE_PARTS, *[(re.compile(part), "VARIABLE") for part in variable_parts]):
        output = pattern.sub(name, output)
    return [line.strip() for line in output.splitlines() if line.strip()]


def matches(shown: str, printed: str, variable_parts: tuple[str, ...] = ()) -> bool:
    """Return whether an output is the one that a page shows. Three dots are any number of lines."""
    shown_lines, printed_lines = normalize(shown, variable_parts), normalize(printed, variable_parts)
    patterns = [r"(?:.*\n)*" if line in ("...", "…") else re.escape(line) + r"\n" for line in shown_lines]
    return re.fullmatch("".join(patterns), "".join(line + "\n" for line in printed_lines)) is not None


@dataclass
class Session:
    """The folder, the database, the shell and the servers of a reader who follows one page."""

    folder: Path
    database_url: str
    environment: dict[str, str | None] = field(default_factory=dict)  # None removes a variable
    compiled_only: tuple[str, ...] = ()  # first lines of blocks that cannot run, such as code of another system
    not_run: Mapping[str, str] = field(default_factory=dict)  # the first line of a block -> the reason not to run it
    variable_parts: tuple[str, ...] = ()  # patterns of further parts of the outputs that differ between two runs
    _own_ids: dict[str, str] = field(default_factory=dict)  # an id or a job key of the page -> the one of this run
    _servers: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._ports = {port: str(find_free_port()) for port in PORTS}
        self._state = self.folder / ".shell-variables"
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV"))}
        own |= {
            "DATABASE_URL": self.database_url,
            "TIDEMILL_HOME": str(self.folder / ".tidemill"),
            "TIDEMILL_HTTP_PORT": self._ports["8484"],
            "TIDEMILL_POLL_MS": "50",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "120",
            "STATE": str(self._state),
            "PYTHONUNBUFFERED": "1",
        }
        self._curl = self.folder / ".curl"
        self._curl.mkdir()
        (self._curl / ".curlrc").write_text("fail-with-body\n")
        self._env = {name: value for name, value in (own | self.environment).items() if value is not None}
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGINT)
        for server in self._servers:
            try:
                server.wait(SERVER_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()

    def run_page(self, page: Path, languages: tuple[str, ...] = ()) -> None:
        """Run all blocks of a page, or those of the given languages; fail at the first output that differs."""
        blocks = read_blocks(page)
        assert {block.first_line for block in blocks} >= {*self.compiled_only, *self.not_run}
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            place = f"{page.name}:{block.line}"
            has_output = following is not None and following.is_output and not following.starts_section
            shown = following.text if following is not None and has_output else None
            if block.first_line in self.compiled_only:
                compile(block.text, place, "exec")
            elif block.is_output or block.language == "http" or block.first_line in self.not_run:
                continue
            elif not languages or block.language in languages:
                self._run_block(block, shown, place)

    def run(self, commands: str) -> None:
        """Run commands that the page does not show, in the same shell."""
        self._run_block(Block("", "sh", commands, 0), None, f"preparation {commands[:40]!r}")

    def _run_block(self, block: Block, shown: str | None, place: str) -> None:
        text = self._use_own_ports(IDENTIFIER.sub(lambda found: self._own_ids.get(found[0], found[0]), block.text))
        if saved := SAVED.search(block.intro):
            path = self.folder / saved["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif added := ADDED.search(block.intro):
            path = self.folder / added["name"]
            assert path.exists(), f"{place}: there is no file {path.name} yet"
            path.write_text(path.read_text() + "\n" + text)
        elif block.language == "sql":
            with psycopg.connect(self.database_url) as conn:
                conn.execute(text.encode())
        elif block.language == "python":
            self._check_command([sys.executable, "-c", text], shown, place)
        elif block.language == "sh":
            ready = next((line for name, line in SERVERS.items() if text.startswith(name)), None)
            if ready is None:
                keep = LOAD_STATE + "trap '{ export -p; declare -f; } > \"$STATE\"' EXIT\n"
                # Without a shown output, a command that fails and a response with an error status fail the block.
                stop = "CURL_HOME=\n" if shown is not None else f"CURL_HOME={self._curl}; set -e -o pipefail\n"
                self._check_command(["bash", "-c", keep + stop + text], shown, place)
            else:
                self._start_server(text, ready, shown, place)
        else:
            raise AssertionError(f"{place}: a block of {block.language} needs the name of its file")

    def _check_command(self, argv: list[str], shown: str | None, place: str) -> None:
        merged = subprocess.STDOUT
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=merged,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        if shown is None:
            assert done.returncode == 0, f"{place} ended with {done.returncode}:\n{done.stdout}"
        else:
            is_as_shown = matches(shown, done.stdout, self.variable_parts)
            assert is_as_shown, f"{place} printed:\n{done.stdout}\nand the page shows:\n{shown}"
            shown_ids, own_ids = IDENTIFIER.findall(shown), IDENTIFIER.findall(done.stdout)
            if len(shown_ids) == len(own_ids):
                self._own_ids |= dict(zip(shown_ids, own_ids, strict=True))

    def _start_server(self, command: str, ready: str, shown: str | None, place: str) -> None:
        log = self.folder / f".server-{len(self._servers)}.log"
        with log.open("w") as out:
            server = subprocess.Popen(
                ["bash", "-c", f"{LOAD_STATE}exec {command}"],
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
        self._servers.append(server)
        wait_for(lambda: bool(re.search(ready, log.read_text())) or server.poll() is not None, f"{place} to be ready")
        printed = log.read_text()
        assert server.poll() is None, f"{place} ended:\n{printed}"
        if shown is not None:
            lines = normalize(printed, self.variable_parts)
            missing = [line for line in normalize(shown, self.variable_parts) if line not in (*lines, "...", "…")]
            assert not missing, f"{place} printed:\n{printed}\nwithout these lines of the page: {missing}"

    def _use_own_ports(self, text: str) -> str:
        for port, own in self._ports.items():
            text = re.sub(rf"(?<=127\.0\.0\.1:){port}\b|(?<=localhost:){port}\b|(?<=--port ){port}\b", own, text)
        return text


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def wait_for(is_reached: Callable[[], bool], name: str, within: float = SERVER_TIMEOUT_S) -> None:
    deadline = time.monotonic() + within
    while not is_reached():
        assert time.monotonic() < deadline, f"waited {within} s for {name}"
        time.sleep(0.05)


def iterate_words(page: Path) -> Iterator[str]:
    """Yield the words of a page without its code blocks."""
    yield from re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).split()
