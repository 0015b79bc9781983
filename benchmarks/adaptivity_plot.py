"""Draw docs/explanation/adaptivity.svg: the controller with a simulated provider. Run it after a change of either.

python benchmarks/adaptivity_plot.py
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from simulated_provider import Second, simulate

TARGET = Path(__file__).parents[1] / "docs" / "explanation" / "adaptivity.svg"
HIGH, LATENCY_S = 50, 0.2
RATES = (100, 40, 200)  # requests per second that the provider accepts, for a minute each
MINUTE = 60

WIDTH, LEFT, RIGHT = 760, 46, 14
TOP, LEVELS, BETWEEN, REFUSALS = 34, 220, 46, 60  # heights, from top to bottom
FLOOR = TOP + LEVELS
BOTTOM = FLOOR + BETWEEN + REFUSALS
HEIGHT = BOTTOM + 34
SECONDS = MINUTE * len(RATES)
MOST_REFUSED = 100

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .title { font-size: 13px; font-weight: 600 }
  .grid { stroke: #8b949e; stroke-opacity: .25 }
  .level { fill: none; stroke: #0969da; stroke-width: 2 }
  .limit { fill: none; stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .refused { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #b1bac4 } .level { stroke: #58a6ff } .limit { stroke: #f0883e } .refused { fill: #ff7b72 }
  }
"""


def trace() -> list[Second]:
    """Simulate three minutes. The rate of the provider falls after the first and rises after the second."""
    simulation = simulate(RATES[0], LATENCY_S, high=HIGH)
    for rate in RATES:
        simulation.provider.rate = rate
        simulation.run(MINUTE)
    return simulation.seconds


def x(second: float) -> float:
    return LEFT + second / SECONDS * (WIDTH - LEFT - RIGHT)


def y(level: float) -> float:
    return FLOOR - level / HIGH * LEVELS


def text(at_x: float, at_y: float, words: str, anchor: str = "start", style: str = "") -> str:
    classed = f' class="{style}"' if style else ""
    return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}"{classed}>{words}</text>'


def line(points: Iterable[tuple[float, float]], style: str) -> str:
    return f'<polyline class="{style}" points="{" ".join(f"{px:.1f},{py:.1f}" for px, py in points)}"/>'


def axes() -> list[str]:
    return [
        *(f'<path class="grid" d="M{LEFT} {y(level):.1f}H{WIDTH - RIGHT}"/>' for level in range(0, HIGH + 1, 10)),
        *(text(LEFT - 8, y(level) + 4, str(level), "end") for level in range(0, HIGH + 1, 10)),
        f'<path class="grid" d="M{LEFT} {BOTTOM}H{WIDTH - RIGHT}"/>',
        text(LEFT - 8, BOTTOM - REFUSALS + 4, str(MOST_REFUSED), "end"),
        text(LEFT - 8, BOTTOM + 4, "0", "end"),
        *(text(x(second), BOTTOM + 20, f"{second} s", "middle") for second in range(0, SECONDS + 1, 30)),
    ]


def limits(seconds: Sequence[Second]) -> list[str]:
    """Return the line of the provider's limit, and a label for each rate."""
    points = [(x(at + edge), y(second.sustainable)) for at, second in enumerate(seconds) for edge in (0, 1)]
    words = [
        text(x(number * MINUTE + MINUTE / 2), FLOOR - 8, f"limit: {rate} requests per second", "middle")
        for number, rate in enumerate(RATES)
    ]
    return [line(points, "limit"), *words]


def refusals(seconds: Sequence[Second]) -> list[str]:
    bars = []
    for at, second in enumerate(seconds):
        height = min(second.throttled, MOST_REFUSED) / MOST_REFUSED * REFUSALS
        if height:
            box = f'x="{x(at):.1f}" y="{BOTTOM - height:.1f}" width="{x(1) - x(0) - 0.6:.1f}" height="{height:.1f}"'
            bars.append(f'<rect class="refused" {box}/>')
    return bars


def plot(seconds: Sequence[Second]) -> str:
    """Return the plot as SVG."""
    label = "Concurrent items follow the limit of the provider; few requests are throttled after each change"
    head = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}"'
    return "\n".join(
        [
            f"<svg {head}>",
            f"<style>{STYLE}</style>",
            *axes(),
            text(LEFT, TOP - 14, "concurrent items, and the limit of the provider (dashed)", style="title"),
            text(LEFT, FLOOR + BETWEEN - 14, "throttled requests (429) per second", style="title"),
            *limits(seconds),
            line([(x(0), y(HIGH)), *((x(at + 1), y(second.level)) for at, second in enumerate(seconds))], "level"),
            *refusals(seconds),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    TARGET.write_text(plot(trace()))
