"""Choices from a seed: each as likely as the other, and told of when an example fails."""

import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import note

T = TypeVar("T")


class Dice:
    """Hypothesis draws the seeds and leaves out steps; what a step does comes from its seed, evenly spread."""

    def __init__(self, seed: int, times: int = 0) -> None:
        """``times`` the same seed was used before: hypothesis is fond of repeating itself."""
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
        """In their order: often few, sometimes many."""
        most = self._random.choice((2, 5, len(values)))
        count = self._random.randint(min(least, len(values)), max(least, min(most, len(values))))
        places = sorted(self._random.sample(range(len(values)), min(count, len(values))))
        note(f"    {label}: {[values[place] for place in places]}")
        return [values[place] for place in places]
