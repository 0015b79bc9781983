"""What is dispatched, how much of it and how often."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """``jobs`` of ``rows`` items each turn; ``starts`` jobs of one item, for the wake-up; ``hints`` for the relay.

    Addresses are of brokers that run already; without one, a broker of our own is started if it is installed.
    """

    jobs: int = 25
    rows: int = 4_000
    rounds: int = 3
    starts: int = 40
    hints: int = 10_000
    redis: str | None = None
    rabbitmq: str | None = None
