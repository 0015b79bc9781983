"""Draw docs/reference/matching.svg from a real run: workers match 5,000 rows against csv-reconcile, rate-limited.

A proxy in front of the service counts the requests. In the middle of the run it throttles all of them for 8 s.
The run takes about a minute.

python benchmarks/matching_plot.py
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from enrichment.throttling_proxy import Gate  # noqa: E402  importable after the line above
from support.reconciliation_services import CsvReconcile, scripted  # noqa: E402
from tidemill import Mill  # noqa: E402
from tidemill.config import Settings  # noqa: E402
from tidemill.testing.throwaway_postgres import ThrowawayServer  # noqa: E402

TARGET = ROOT / "docs" / "reference" / "matching.svg"
ROWS, BATCH, RATE, BURST, PROCESSES = 5_000, 20, 5, 2, 2
STORM_S = 8.0
NAMES = [
    f"{first} {last}" for first in ("Ada", "Alan", "Grace", "Tony") for last in ("Hopper", "Hoare", "Turing", "Allen")
]

WIDTH, LEFT, RIGHT = 760, 46, 14
TOP, PASSED, BETWEEN, REFUSED = 34, 200, 46, 50  # heights, from top to bottom
FLOOR = TOP + PASSED
BOTTOM = FLOOR + BETWEEN + REFUSED
HEIGHT = BOTTOM + 34
HIGH, MOST_REFUSED = 8, 10

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .title { font-size: 13px; font-weight: 600 }
  .grid { stroke: #8b949e; stroke-opacity: .25 }
  .passed { fill: #0969da }
  .limit { fill: none; stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .refused { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #b1bac4 } .passed { fill: #58a6ff } .limit { stroke: #f0883e } .refused { fill: #ff7b72 }
  }
"""


@dataclass(frozen=True, slots=True)
class Second:
    """The requests that the proxy passed on and throttled in one second."""

    passed: int
    refused: int


def declared(url: str) -> str:
    service = f'[services.names]\nurl = "{url}"\nallow_private = true\nbatch = {BATCH}\nlimit = "names"\n'
    return f'{service}[limiters.names]\nrate = "{RATE}/s"\nburst = {BURST}\n'


@contextlib.contextmanager
def worker(settings: Settings) -> Iterator[None]:
    """Run `tidemill worker` with its child processes."""
    names = ("database_url", "home", "config")
    env = os.environ | {f"TIDEMILL_{name.upper()}": str(getattr(settings, name)) for name in names}
    argv = [sys.executable, "-c", "from tidemill.cli.main import main; main()", "worker", "-p", str(PROCESSES)]
    process = subprocess.Popen(argv, env=env | {"TIDEMILL_LOG_LEVEL": "error"}, cwd=settings.home)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


async def match(settings: Settings, service: CsvReconcile) -> list[Second]:
    """Match every row; return the requests that the proxy received in each second."""
    gate = Gate(service.url, ROWS * 2 // 5, STORM_S)
    async with scripted(gate.answer) as before:
        assert settings.config is not None
        settings.config.write_text(declared(before.url))
        mill = Mill(settings)
        params = {"service": "names", "query": "name", "threshold": 90}
        inputs = [{"name": NAMES[number % len(NAMES)]} for number in range(ROWS)]
        job_id = await mill.submit_async("match", inputs, params=params)
        with worker(settings):
            await _closed(mill, job_id)
        await gate.close()
    return seconds(gate.passed, gate.refused)


async def _closed(mill: Mill, job_id: UUID) -> None:
    while not (job := await mill.job_async(job_id)).is_closed:  # noqa: ASYNC110  the worker process closes it
        await asyncio.sleep(0.5)
    assert (job.status, job.counts.done) == ("completed", ROWS), job


def seconds(passed: Sequence[float], refused: Sequence[float]) -> list[Second]:
    first = passed[0]
    length = int(max([*passed, *refused]) - first) + 1
    return [
        Second(sum(int(at - first) == number for at in passed), sum(int(at - first) == number for at in refused))
        for number in range(length)
    ]


def run() -> list[Second]:
    with (
        tempfile.TemporaryDirectory() as folder,
        ThrowawayServer() as server,
        CsvReconcile(Path(folder), NAMES) as service,
    ):
        settings = Settings(
            database_url=server.create_database(), home=Path(folder), config=Path(folder) / "tidemill.toml"
        )
        return asyncio.run(match(settings, service))


def plot(measured: Sequence[Second]) -> str:
    """Return the plot as SVG."""
    width = (WIDTH - LEFT - RIGHT) / len(measured)
    label = "Requests per second stay below the limit; while the service throttles, few requests are sent"
    head = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}"'
    passed = [second.passed for second in measured]
    refused = [second.refused for second in measured]
    return "\n".join(
        [
            f"<svg {head}>",
            f"<style>{STYLE}</style>",
            *axes(len(measured)),
            text(
                LEFT,
                TOP - 14,
                f"requests per second that the service answered, and the limit of {RATE} (dashed)",
                "title",
            ),
            text(LEFT, FLOOR + BETWEEN - 14, "throttled requests (429) per second", "title"),
            *bars(passed, "passed", FLOOR, PASSED / HIGH, width),
            *bars(refused, "refused", BOTTOM, REFUSED / MOST_REFUSED, width),
            f'<path class="limit" d="M{LEFT} {FLOOR - RATE / HIGH * PASSED:.1f}H{WIDTH - RIGHT}"/>',
            "</svg>\n",
        ]
    )


def bars(counts: Iterable[int], style: str, floor: int, unit: float, width: float) -> list[str]:
    return [
        f'<rect class="{style}" x="{LEFT + at * width:.1f}" y="{floor - count * unit:.1f}" '
        f'width="{max(width - 0.8, 0.5):.1f}" height="{count * unit:.1f}"/>'
        for at, count in enumerate(counts)
        if count
    ]


def axes(length: int) -> list[str]:
    width = (WIDTH - LEFT - RIGHT) / length
    levels = [(level, FLOOR - level / HIGH * PASSED) for level in range(0, HIGH + 1, 2)]
    return [
        *(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>' for _, at in levels),
        *(text(LEFT - 8, at + 4, str(level), anchor="end") for level, at in levels),
        f'<path class="grid" d="M{LEFT} {BOTTOM}H{WIDTH - RIGHT}"/>',
        text(LEFT - 8, BOTTOM - REFUSED + 4, str(MOST_REFUSED), anchor="end"),
        text(LEFT - 8, BOTTOM + 4, "0", anchor="end"),
        *(text(LEFT + at * width, BOTTOM + 20, f"{at} s", anchor="middle") for at in range(0, length, 10)),
    ]


def text(at_x: float, at_y: float, words: str, style: str = "", anchor: str = "start") -> str:
    classed = f' class="{style}"' if style else ""
    return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}"{classed}>{words}</text>'


if __name__ == "__main__":
    measured_seconds = run()
    print("passed   ", [second.passed for second in measured_seconds])
    print("throttled", [second.refused for second in measured_seconds])
    TARGET.write_text(plot(measured_seconds))
