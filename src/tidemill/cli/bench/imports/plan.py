"""What is imported, how much of it and how often."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """``users`` rows of CSV, ``articles`` rows of NDJSON with a foreign key, ``pairs`` rows all good and all bad."""

    users: int = 1_000_000
    articles: int = 300_000
    pairs: int = 200_000
    rounds: int = 2
    processes: int = 2


FULL = Plan(users=10_000_000, rounds=1)
