"""The sizes and the number of rounds of each benchmark."""

from dataclasses import dataclass

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class ItemsBenchPlan:
    """Rounds of ``rows`` items, and of ``large`` items for the cost of a longer job. ``full``: all figures for both."""

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
    """A job of ``items``; ``rounds`` over all pages; load for ``seconds``; an upload of ``upload_mb``."""

    items: int = MILLION
    rounds: int = 120  # so that one slow round in a hundred does not affect the p99
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
    """``users``: CSV rows; ``articles``: NDJSON rows with a foreign key; ``pairs``: rows all good, and all bad."""

    users: int = 1_000_000
    articles: int = 300_000
    pairs: int = 200_000
    rounds: int = 2
    processes: int = 2


FULL_IMPORT_PLAN = ImportBenchPlan(users=10_000_000, rounds=1)


@dataclass(frozen=True, slots=True)
class ExportBenchPlan:
    """``users``: rows in each format except xlsx; ``book_rows``: rows of a workbook; ``inputs``: distributed files."""

    users: int = MILLION
    book_rows: int = 200_000
    inputs: int = 10_000
    rounds: int = 3


FULL_EXPORT_PLAN = ExportBenchPlan(users=10 * MILLION, rounds=1)


@dataclass(frozen=True, slots=True)
class DispatchBenchPlan:
    """Per round ``jobs`` of ``rows`` items; ``starts``: one-item jobs for the wake-up; ``hints``: hints to relay.

    ``redis`` and ``rabbitmq`` are URLs of running brokers. Without a URL, a temporary broker is started if installed.
    """

    jobs: int = 25
    rows: int = 4_000
    rounds: int = 3
    starts: int = 40
    hints: int = 10_000
    redis: str | None = None
    rabbitmq: str | None = None


@dataclass(frozen=True, slots=True)
class NeighbourBenchPlan:
    """``rows`` of the measured user's file, imported ``rounds`` times before and during the attacks.

    ``attacks``: the names of the attacks to run; all of them if empty. The measurement starts ``settle_s`` after the
    last of them has started.
    """

    rows: int = 100_000
    rounds: int = 5
    streamed_rows: int = 300_000
    settle_s: float = 10.0
    attacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadBenchPlan:
    """The sizes of the measurements of `tidemill bench load`."""

    items: int = MILLION  # of the large job
    small_items: int = 10_000  # of the job that its cost is compared with
    small_rounds: int = 5
    workers: int = 5  # each with ``children``
    children: int = 10
    worker_items: int = 200_000
    clients: int = 1_000
    client_requests_per_s: float = 200.0  # of all clients together
    client_s: float = 60.0
    snapshot_s: float = 60.0
    snapshot_items_per_s: int = 15_000  # more than workers process with the small claims of this measurement
    huge_items: int = 600_000  # of the job beside the small ones
    small_jobs: int = 100  # of one item each
    soak_s: float = 120.0
    soak_sample_s: float = 5.0


FULL_LOAD_PLAN = LoadBenchPlan(
    items=10 * MILLION, client_s=300.0, snapshot_s=600.0, huge_items=MILLION, small_jobs=400, soak_s=1_800.0
)
