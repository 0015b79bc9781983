"""What is measured, at which sizes and how often.

What is asked of the service, of how big a job and how often.

What is imported, how much of it and how often.

What is exported, how much of it and how often.

What is dispatched, how much of it and how often.
"""

from dataclasses import dataclass

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class ItemsBenchPlan:
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
    def cost_ratio_name(self) -> str:
        return "cost_1m_vs_100k" if self.full else "cost_large_vs_small"


@dataclass(frozen=True, slots=True)
class ApiBenchPlan:
    """A job of ``items``; ``rounds`` over every kind of page; a crowd for ``seconds``; a file of ``upload_mb``."""

    items: int = MILLION
    rounds: int = 120  # of which one in a hundred may be the machine's own doing
    pollers: int = 200
    submitters: int = 20
    seconds: float = 20.0
    upload_mb: int = 400

    @property
    def client_count(self) -> int:
        return self.pollers + self.submitters


FULL_API_PLAN = ApiBenchPlan(items=5 * MILLION, rounds=240, seconds=60.0, upload_mb=1024)


@dataclass(frozen=True, slots=True)
class ImportBenchPlan:
    """``users`` rows of CSV, ``articles`` rows of NDJSON with a foreign key, ``pairs`` rows all good and all bad."""

    users: int = 1_000_000
    articles: int = 300_000
    pairs: int = 200_000
    rounds: int = 2
    processes: int = 2


FULL_IMPORT_PLAN = ImportBenchPlan(users=10_000_000, rounds=1)


@dataclass(frozen=True, slots=True)
class ExportBenchPlan:
    """``users`` rows in every form but workbooks, which have ``book_rows``; ``inputs`` files to an object store."""

    users: int = MILLION
    book_rows: int = 200_000
    inputs: int = 10_000
    rounds: int = 3


FULL_EXPORT_PLAN = ExportBenchPlan(users=10 * MILLION, rounds=1)


@dataclass(frozen=True, slots=True)
class DispatchBenchPlan:
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
