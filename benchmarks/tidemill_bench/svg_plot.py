"""Line plots as SVG, for the documentation: panels below each other, with the same time axis."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, LEFT, RIGHT = 760, 64, 150
TOP, PANEL_HEIGHT, PANEL_GAP, BOTTOM_MARGIN = 34, 150, 46, 34
TIME_TICKS, VALUE_TICKS = 6, 4
COLORS = ("a", "b", "c", "d", "e", "f")
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .title { font-size: 13px; font-weight: 600 }
  .grid { stroke: #8b949e; stroke-opacity: .25 }
  .line { fill: none; stroke-width: 1.5 }
  .a { stroke: #0969da } .b { stroke: #bc4c00 } .c { stroke: #1a7f37 } .d { stroke: #8250df } .e { stroke: #cf222e }
  .f { stroke: #57606a }
  @media (prefers-color-scheme: dark) {
    text { fill: #b1bac4 } .a { stroke: #58a6ff } .b { stroke: #f0883e } .c { stroke: #3fb950 } .d { stroke: #bc8cff }
    .e { stroke: #ff7b72 } .f { stroke: #b1bac4 }
  }
"""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines with a common value axis, which starts at 0: label -> points of seconds and values."""

    title: str
    lines: Mapping[str, Points]

    @property
    def maximum(self) -> float:
        return max((value for points in self.lines.values() for _, value in points), default=0.0) or 1.0


def draw_plot(panels: Sequence[Panel], description: str) -> str:
    """Return the plot as SVG."""
    seconds = max(points[-1][0] for panel in panels for points in panel.lines.values() if points) or 1.0
    height = TOP + len(panels) * (PANEL_HEIGHT + PANEL_GAP) - PANEL_GAP + BOTTOM_MARGIN
    head = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{description}"'
    parts = [f"<svg {head}>", f"<style>{STYLE}</style>"]
    for number, panel in enumerate(panels):
        floor = TOP + number * (PANEL_HEIGHT + PANEL_GAP) + PANEL_HEIGHT
        parts += _draw_panel(panel, floor, seconds)
    parts += _draw_time_axis(height - BOTTOM_MARGIN, seconds)
    return "\n".join([*parts, "</svg>\n"])


def _draw_panel(panel: Panel, floor: float, seconds: float) -> list[str]:
    most = panel.maximum
    parts = [_text(LEFT, floor - PANEL_HEIGHT - 14, panel.title, style="title")]
    for tick in range(VALUE_TICKS + 1):
        y = floor - tick / VALUE_TICKS * PANEL_HEIGHT
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 8, y + 4, _format_value(most * tick / VALUE_TICKS), "end"))
    labels: list[tuple[float, str]] = []
    for color, (name, points) in zip(COLORS, panel.lines.items(), strict=False):
        at = [(_x(second, seconds), floor - value / most * PANEL_HEIGHT) for second, value in points]
        parts.append(_line(at, color))
        labels.append((at[-1][1], name))
    return parts + _draw_labels(labels)


def _draw_labels(labels: Iterable[tuple[float, str]]) -> list[str]:
    """Write the name of each line beside its end, at least a line height apart."""
    parts, last = [], float("-inf")
    for y, name in sorted(labels):
        last = max(y, last + 14)
        parts.append(_text(WIDTH - RIGHT + 8, last + 4, name))
    return parts


def _draw_time_axis(y: float, seconds: float) -> list[str]:
    return [
        _text(_x(seconds * tick / TIME_TICKS, seconds), y + 20, f"{seconds * tick / TIME_TICKS:,.0f} s", "middle")
        for tick in range(TIME_TICKS + 1)
    ]


def _x(second: float, seconds: float) -> float:
    return LEFT + second / seconds * (WIDTH - LEFT - RIGHT)


def _format_value(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.2g}"  # noqa: PLR2004


def _text(x: float, y: float, words: str, anchor: str = "start", style: str = "") -> str:
    classed = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{classed}>{words}</text>'


def _line(points: Iterable[tuple[float, float]], color: str) -> str:
    return f'<polyline class="line {color}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'
