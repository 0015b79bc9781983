"""What is exported, how much of it and how often."""

from dataclasses import dataclass

from tidemill.cli.bench.plan import MILLION


@dataclass(frozen=True, slots=True)
class Plan:
    """``users`` rows in every form but workbooks, which have ``book_rows``; ``inputs`` files to an object store."""

    users: int = MILLION
    book_rows: int = 200_000
    inputs: int = 10_000
    rounds: int = 3


FULL = Plan(users=10 * MILLION, rounds=1)
