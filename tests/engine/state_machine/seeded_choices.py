"""Random choices from a seed: uniformly distributed, and reported when an example fails."""

import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import note

T = TypeVar("T")


class Dice:
    """Hypothesis draws the seeds and drops steps; the choices of a step come from its seed."""

    def __init__(self, seed: int, times: int = 0) -> None:
        """``times`` is how often the seed was used before, because Hypothesis repeats values."""
        self._random = random.Random(f"{seed} {times}")

    def pick(self, label: str, values: Sequence[T]) -> T:
        chosen = self._random.choice(values)
        note(f"    {label}: {chosen}")
        return chosen

    def number(self, label: str, low: int, high: int) -> int:
        return self.pick(label, range(low, high + 1))

    def coin(self, label: str) -> bool:
        return self.pick(label, (False, True))

    def some(self, label: str, values: Sequence[T], least: int = 0) -> list[T]:
        """Choose elements in order: often few, sometimes many."""
        most = self._random.choice((2, 5, len(values)))
        count = self._random.randint(min(least, len(values)), max(least, min(most, len(values))))
        places = sorted(self._random.sample(range(len(values)), min(count, len(values))))
        note(f"    {label}: {[values[place] for place in places]}")
        return [values[place] for place in places]
