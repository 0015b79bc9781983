"""The metric families: names, labels and buckets. docs/reference/telemetry.md has the same table."""

import collections
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from tidemill.core.child_exit import ExitCause
from tidemill.core.status import ItemStatus

DURATION_BUCKETS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
SIZE_BUCKETS_ITEMS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000)
FILL_BUCKETS_RATIO = (0.1, 0.25, 0.5, 0.8, 0.9, 1.0)

SETTLED_STATUSES = (ItemStatus.DONE, ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.FAILED)
DEATH_CAUSES = tuple(cause for cause in ExitCause if cause is not ExitCause.STOPPED)
LEASE_LOSS_OBSERVERS = ("reader", "flush", "sweep")
HINT_FATES = ("sent", "unwanted", "resent", "heard", "dropped", "quarantined")
LOOP_NAMES = (
    *("bulk", "fetch", "heartbeat", "hub", "ingest", "insight", "janitor", "lane", "limits"),
    *("maintenance", "quarantine", "queue", "relay", "scan", "supervise"),
)


class ExpiringGauge:
    """A gauge that is absent before it is first set, and again ``seconds`` after it was last set.

    The gauges of the library start at 0 and never expire: a worker that no longer does maintenance would keep exposing
    its last queue depth.
    """

    def __init__(self, name: str, text: str, labels: tuple[str, ...], seconds: float = float("inf")) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._seconds = seconds
        self._values: dict[tuple[str, ...], tuple[float, float]] = {}
        self._clock: Callable[[], float] = time.monotonic

    def set(self, value: float, *labels: str) -> None:
        self._values[labels] = (value, self._clock())

    def remove_all_series_with_label(self, label: str, label_value: str) -> None:
        """Remove all series with this value of a label."""
        index = self._labels.index(label)
        self._values = {labels: value for labels, value in self._values.items() if labels[index] != label_value}

    def get(self, *labels: str) -> float | None:
        return self._values[labels][0] if labels in self._values else None

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        oldest = self._clock() - self._seconds
        for labels, (value, at) in sorted(self._values.items()):
            if at >= oldest:
                family.add_metric(labels, value)
        return [family]


class MetricFamilies:
    """The metrics of one process, in a separate registry, so that metrics of handlers are not affected."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        count, spread, gauge = self._add_counter, self._add_histogram, self._add_gauge

        self.jobs_submitted = count("jobs_submitted", "Submitted jobs", "kind")
        self.jobs_closed = count("jobs_closed", "Closed jobs", "kind", "closed_as")
        self.items = count("items", "Items that handlers settled", "kind", "status")
        self.failures = count("failures", "Items that failed", "kind", "code")
        self.retries = count("retries", "Attempts that will be retried", "kind", "code")
        self.throttles = count("throttles", "Attempts that the called service throttled", "kind", "provider")
        self.error_rate = gauge("error_rate", "Share of failed items among about the last 1,000", "kind")
        self.not_found_rate = gauge("not_found_rate", "Share of items not found among about the last 1,000", "kind")

        self.ingest_ms = spread("ingest_ms", "Milliseconds to store a chunk of a source", DURATION_BUCKETS_MS, "kind")
        self.ingest_chunk_rows = spread("ingest_chunk_rows", "Rows per chunk of a source", SIZE_BUCKETS_ITEMS, "kind")
        self.ingest_rows = count("ingest_rows", "Rows read from sources", "kind")
        self.claim_items = spread("claim_items", "Items per claim", SIZE_BUCKETS_ITEMS, "kind")
        self.concurrency = gauge("concurrency", "Maximum items that a child process runs at a time", "kind", "child")
        self.lease_length = gauge("lease_seconds", "Duration of a new lease", "kind", "child", seconds=30)
        self.retry_spacing = gauge("retry_spacing", "Multiplier of the retry backoff", "kind", "child", seconds=30)
        self.pressure = gauge("pressure", "Load of a child process and its machine", "child", "of", seconds=30)
        self.flush_items = spread("flush_items", "Outcomes per flush", SIZE_BUCKETS_ITEMS, "kind")
        self.flush_ms = spread("flush_ms", "Duration of a flush in milliseconds", DURATION_BUCKETS_MS, "kind")
        self.buffer_fill = spread(
            "buffer_fill", "Used share of the outcome buffer at a flush", FILL_BUCKETS_RATIO, "kind"
        )
        self.stale_results = count("stale_results", "Outcomes rejected because their lease was lost", "kind")
        self.lease_losses = count("lease_losses", "Lost leases", "noticed_by")

        self.limiter_permits = count("limiter_permits", "Permits granted by a limiter", "limiter")
        self.limiter_waited = count("limiter_waited_seconds", "Seconds that calls waited for a limiter", "limiter")
        self.limiter_blocked = count(
            "limiter_blocked_seconds", "Seconds for which throttled calls blocked a limiter", "limiter"
        )
        self.limiter_refusals = count("limiter_refusals", "Throttled calls", "limiter")
        self.limiter_share = gauge("limiter_share", "Current share of the declared rate", "limiter", seconds=300)

        self.queue_depth = gauge("queue_depth", "Open items of all jobs", "status", seconds=30)
        self.queue_oldest = gauge(
            "queue_oldest_seconds", "Seconds for which the oldest due work has waited", seconds=30
        )
        self.pending_count = gauge("pending_count", "Items that are not settled", seconds=30)
        self.hints = count("hints", "Hints by result", "fate")
        self.hints_ms = spread("hints_ms", "Milliseconds to send a block of hints from the outbox", DURATION_BUCKETS_MS)
        self.outbox_depth = gauge("outbox_depth", "Hints that wait for the broker", seconds=30)
        self.outbox_oldest = gauge("outbox_oldest_seconds", "Age of the oldest waiting hint in seconds", seconds=30)
        self.quarantined = gauge("quarantined", "Messages in quarantine", seconds=30)
        self.broker_up = gauge("broker_up", "Whether the broker responded to the last request of this process")
        self.workers = gauge("workers", "Running workers of this process, besides those that serve kickoff requests")
        self.children = gauge("children", "Running child processes")
        self.children_died = count("children_died", "Child processes that died", "cause")
        self.loop_failures = count("loop_failures", "Errors in background loops", "loop")

        self.db_latency = gauge("db_latency_ewma_ms", "Moving average of transaction durations in milliseconds")
        self.db_retries = count("db_retries", "Retried transactions", "verb")
        self.slow_queries = count("slow_queries", "Transactions slower than TIDEMILL_SLOW_QUERY_MS", "verb")
        self.pool_wait_ms = spread(
            "pool_wait_ms", "Milliseconds that a caller waited for a free connection", DURATION_BUCKETS_MS
        )

        self.page_ms = spread("page_ms", "Milliseconds to read a page of a list", DURATION_BUCKETS_MS, "list")
        self.http_requests = count("http_requests", "HTTP requests", "route", "method", "status")
        self.http_ms = spread(
            "http_request_ms", "Duration of an HTTP request in milliseconds", DURATION_BUCKETS_MS, "route", "method"
        )
        self.events_lost = count("events_lost", "Child process events that are missing from these metrics")

    def initialize_counters(self, kinds: Iterable[str]) -> None:
        """Expose counters with 0 before their first event: ``increase`` in Prometheus ignores the first value.

        These are the counters of alerts whose label values are known in advance.
        """
        for cause in DEATH_CAUSES:
            self.children_died.labels(cause)
        for noticed_by in LEASE_LOSS_OBSERVERS:
            self.lease_losses.labels(noticed_by)
        for loop in LOOP_NAMES:
            self.loop_failures.labels(loop)
        for fate in HINT_FATES:
            self.hints.labels(fate)
        for kind in kinds:
            self.stale_results.labels(kind)
            for status in SETTLED_STATUSES:
                self.items.labels(kind, status)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics without the creation times of series, which Prometheus does not need."""
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family

    def _add_counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"tidemill_{name}", text, labels, registry=self._registry)

    def _add_histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"tidemill_{name}", text, labels, buckets=buckets, registry=self._registry)

    def _add_gauge(self, name: str, text: str, *labels: str, seconds: float = float("inf")) -> ExpiringGauge:
        gauge = ExpiringGauge(f"tidemill_{name}", text, labels, seconds)
        self._registry.register(gauge)
        return gauge


OTHER_LABEL: Final = "other"
MAX_LABEL_VALUES = 100  # values per label that are not defined here
# The error codes of Tidemill itself; handlers define others.
BUILT_IN_ERROR_CODES: Final = frozenset(
    {"error", "exhausted", "exit", "invalid", "invalid_result", "memory", "not_found", "permanent", "poison", "timeout"}
    | {"service_error", "service_timeout", "service_unreachable", "service_denied", "service_refused", "invalid_answer"}
)
# Codes of handlers for throttled calls; the metrics count them as one code.
THROTTLE_ERROR_CODES: Final = frozenset({"throttled", "429", "too_many_requests", "rate_limit", "rate_limited"})
HTTP_METHOD_LABELS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class BoundedLabel:
    """Keeps the first MAX_LABEL_VALUES values of a label, or only known ones; all others become ``other``."""

    def __init__(self, known: frozenset[str] | None = None) -> None:
        self._open = known is None
        self._known = set(known or ())

    def __call__(self, word: object) -> str:
        text = str(word)
        if text in self._known:
            return text
        if self._open and len(self._known) < MAX_LABEL_VALUES:
            self._known.add(text)
            return text
        return OTHER_LABEL


def count_by_known_code(codes: Mapping[str, int], total: int) -> collections.Counter[str]:
    """Return counts by built-in code; the rest of the total is counted as ``other``."""
    counts = collections.Counter({code: n for code, n in codes.items() if code in BUILT_IN_ERROR_CODES})
    counts["throttled"] = count_throttled(codes)
    counts[OTHER_LABEL] = max(0, total - counts.total())
    return +counts


def filter_measured_codes(codes: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of the codes that the metrics distinguish."""
    return {
        code: n for code, n in codes.items() if code in BUILT_IN_ERROR_CODES or code.lower() in THROTTLE_ERROR_CODES
    }


def count_throttled(codes: Mapping[str, int]) -> int:
    return sum(n for code, n in codes.items() if code.lower() in THROTTLE_ERROR_CODES)
