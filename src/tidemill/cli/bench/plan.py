"""What is measured, at which sizes and how often."""

from dataclasses import dataclass

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds of ``rows`` items; ``large`` shows what a longer job costs per item. ``full``: everything at both."""

    rows: int
    large: int
    rounds: int
    starts: int = 40
    full: bool = False

    @property
    def large_rounds(self) -> int:
        return min(2, self.rounds)

    @property
    def cost_ratio(self) -> str:
        return "cost_1m_vs_100k" if self.full else "cost_large_vs_small"
