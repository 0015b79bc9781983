"""Converts events to metrics for Prometheus."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from tidemill.core.child_exit import ExitCause
from tidemill.core.status import ItemStatus
from tidemill.telemetry.events import Event, Subscriber
from tidemill.telemetry.metric_labels import (
    HTTP_METHOD_LABELS,
    MAX_LABEL_VALUES,
    BoundedLabel,
    count_by_known_code,
    count_throttled,
)

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
        self.limiter_share = gauge(
            "limiter_share", "Current rate of a limiter, as a share of its declared rate", "limiter", seconds=300
        )

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


LATENCY_AVERAGE_WEIGHT = 0.3  # the weight of the newest second in the moving average of the database's latency
RATE_MEMORY_ITEMS = 1_000  # the number of settled items that dominate a moving share


class MetricsSubscriber:
    """Subscribes to events and counts them; ``render`` returns the page for Prometheus.

    ``providers`` has the limiter of each kind's handler. With ``only_these_kinds`` all other kinds are counted as
    ``other``; without it, the first 100 kinds get their own label.
    """

    def __init__(self, providers: Mapping[str, str] | None = None, *, only_these_kinds: bool = False) -> None:
        self.families = MetricFamilies()
        self._providers = providers or {}
        self._kind = BoundedLabel(frozenset(self._providers) if only_these_kinds else None)
        self._method = BoundedLabel(HTTP_METHOD_LABELS)
        self._route, self._list, self._verb, self._loop = BoundedLabel(), BoundedLabel(), BoundedLabel(), BoundedLabel()
        self._limiter = BoundedLabel()
        self._children = 0
        self._workers = 0
        self.families.initialize_counters(list(self._providers)[:MAX_LABEL_VALUES])
        methods = (name for name in vars(MetricsSubscriber) if name.startswith("_on_"))
        self._listeners: dict[str, Subscriber] = {
            name.removeprefix("_on_").replace("_", ".", 1): getattr(self, name) for name in methods
        }

    def record_event(self, event: Event) -> None:
        listener = self._listeners.get(event.name)
        if listener is not None:
            listener(event)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics and their content type, in the format that an Accept header requests."""
        encode, content_type = choose_encoder(accept)
        return encode(self.families), content_type

    def _get_kind_label(self, event: Event) -> str:
        return self._kind(event.fields.get("kind", ""))

    def _on_job_submitted(self, event: Event) -> None:
        self.families.jobs_submitted.labels(self._get_kind_label(event)).inc()

    def _on_job_closed(self, event: Event) -> None:
        self.families.jobs_closed.labels(self._get_kind_label(event), event.fields["closed_as"]).inc()

    def _on_ingest_chunk(self, event: Event) -> None:
        kind = self._get_kind_label(event)
        self.families.ingest_ms.labels(kind).observe(event.fields["ms"])
        self.families.ingest_rows.labels(kind).inc(event.fields["hi"] - event.fields["lo"])
        self.families.ingest_chunk_rows.labels(kind).observe(event.fields["hi"] - event.fields["lo"])

    def _on_ingest_stale(self, _: Event) -> None:
        self.families.lease_losses.labels("reader").inc()

    def _on_batch_claimed(self, event: Event) -> None:
        self.families.claim_items.labels(self._get_kind_label(event)).observe(event.fields["size"])

    def _on_concurrency_changed(self, event: Event) -> None:
        self.families.concurrency.set(
            event.fields["now"], self._get_kind_label(event), str(event.fields.get("child", ""))
        )

    def _on_worker_adapted(self, event: Event) -> None:
        for reported in event.fields["children"]:
            child = str(reported["child"])
            for kind, state in reported["kinds"].items():
                self.families.lease_length.set(state["lease_s"], self._kind(kind), child)
                self.families.retry_spacing.set(state["retry_spacing"], self._kind(kind), child)
            for name, value in reported["pressure"].items():
                self.families.pressure.set(value, child, name)

    def _on_limiter_taken(self, event: Event) -> None:
        limiter = self._limiter(event.fields["limiter"])
        self.families.limiter_permits.labels(limiter).inc(event.fields["permits"])
        self.families.limiter_waited.labels(limiter).inc(event.fields["waited_s"])

    def _on_limiter_blocked(self, event: Event) -> None:
        limiter = self._limiter(event.fields["limiter"])
        self.families.limiter_blocked.labels(limiter).inc(event.fields["seconds"])
        self.families.limiter_refusals.labels(limiter).inc(event.fields["refusals"])

    def _on_limiter_slowed(self, event: Event) -> None:
        self.families.limiter_share.set(event.fields["share"], self._limiter(event.fields["limiter"]))

    def _on_batch_flushed(self, event: Event) -> None:
        families, kind = self.families, self._get_kind_label(event)
        families.flush_items.labels(kind).observe(event.fields["items"])
        if event.fields["ms"] is not None:
            families.flush_ms.labels(kind).observe(event.fields["ms"])
        if event.fields["fill"] is not None:
            families.buffer_fill.labels(kind).observe(event.fields["fill"])
        for status in SETTLED_STATUSES:
            if event.fields[status]:
                families.items.labels(kind, status).inc(event.fields[status])
        for code, n in count_by_known_code(event.fields["codes"], event.fields["failed"]).items():
            families.failures.labels(kind, code).inc(n)
        settled = sum(event.fields[status] for status in SETTLED_STATUSES)
        _update_moving_rate(families.error_rate, kind, event.fields["failed"], settled)
        _update_moving_rate(families.not_found_rate, kind, event.fields["not_found"], settled)

    def _on_batch_stale(self, event: Event) -> None:
        self.families.stale_results.labels(self._get_kind_label(event)).inc(event.fields["items"])
        self.families.lease_losses.labels("flush").inc()

    def _on_batch_swept(self, _: Event) -> None:
        self.families.lease_losses.labels("sweep").inc()

    def _on_item_retry(self, event: Event) -> None:
        kind = self._get_kind_label(event)
        for code, n in count_by_known_code(event.fields["codes"], event.fields["items"]).items():
            self.families.retries.labels(kind, code).inc(n)
        throttled = count_throttled(event.fields["codes"])
        if throttled:
            self.families.throttles.labels(kind, self._providers.get(kind, kind)).inc(throttled)

    def _on_queue_sampled(self, event: Event) -> None:
        families = self.families
        waiting = (ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_WAIT)
        for status in waiting:
            families.queue_depth.set(event.fields[status], status)
        families.queue_oldest.set(event.fields["oldest_s"])
        families.pending_count.set(sum(event.fields[status] for status in waiting))

    def _on_outbox_sampled(self, event: Event) -> None:
        self.families.outbox_depth.set(event.fields["depth"])
        self.families.outbox_oldest.set(event.fields["oldest_s"])
        self.families.quarantined.set(event.fields["quarantined"])

    def _on_broker_lost(self, _: Event) -> None:
        self.families.broker_up.set(0)

    def _on_broker_found(self, _: Event) -> None:
        self.families.broker_up.set(1)

    def _on_hints_sent(self, event: Event) -> None:
        self.families.hints_ms.observe(event.fields["ms"])
        self.families.hints.labels("sent").inc(event.fields["hints"])
        self.families.hints.labels("unwanted").inc(event.fields["dropped"])

    def _on_hints_resent(self, event: Event) -> None:
        self.families.hints.labels("resent").inc(event.fields["jobs"])

    def _on_hint_heard(self, _: Event) -> None:
        self.families.hints.labels("heard").inc()

    def _on_hint_dropped(self, _: Event) -> None:
        self.families.hints.labels("dropped").inc()

    def _on_hint_quarantined(self, _: Event) -> None:
        self.families.hints.labels("quarantined").inc()

    def _on_worker_started(self, event: Event) -> None:
        self._change_worker_count(event, +1)

    def _on_worker_stopped(self, event: Event) -> None:
        self._change_worker_count(event, -1)

    def _change_worker_count(self, event: Event, change: int) -> None:
        if not event.fields.get("on_demand"):
            self._workers += change
            self.families.workers.set(self._workers)

    def _on_child_started(self, _: Event) -> None:
        self._change_child_count(+1)

    def _on_child_stopped(self, event: Event) -> None:
        self._change_child_count(-1)
        families = self.families
        for gauge in (families.concurrency, families.lease_length, families.retry_spacing, families.pressure):
            gauge.remove_all_series_with_label("child", str(event.fields.get("child", "")))

    def _on_child_died(self, event: Event) -> None:
        self._on_child_stopped(event)
        self.families.children_died.labels(event.fields["cause"]).inc()

    def _change_child_count(self, change: int) -> None:
        self._children += change
        self.families.children.set(self._children)

    def _on_loop_failed(self, event: Event) -> None:
        self.families.loop_failures.labels(self._loop(event.fields["loop"])).inc()

    def _on_database_latency(self, event: Event) -> None:
        gauge = self.families.db_latency
        before = gauge.get()
        gauge.set(
            event.fields["ms"] if before is None else before + LATENCY_AVERAGE_WEIGHT * (event.fields["ms"] - before)
        )

    def _on_database_retry(self, event: Event) -> None:
        self.families.db_retries.labels(self._verb(event.fields["verb"])).inc()

    def _on_query_slow(self, event: Event) -> None:
        self.families.slow_queries.labels(self._verb(event.fields["verb"])).inc()

    def _on_pool_waited(self, event: Event) -> None:
        self.families.pool_wait_ms.observe(event.fields["ms"])

    def _on_page_listed(self, event: Event) -> None:
        self.families.page_ms.labels(self._list(event.fields["list"])).observe(event.fields["ms"])

    def _on_request_done(self, event: Event) -> None:
        route, method = self._route(event.fields["route"]), self._method(event.fields["method"])
        self.families.http_requests.labels(route, method, int(event.fields["status"])).inc()
        self.families.http_ms.labels(route, method).observe(event.fields["ms"])

    def _on_relay_lost(self, event: Event) -> None:
        self.families.events_lost.inc(event.fields["events"])


def _update_moving_rate(gauge: ExpiringGauge, kind: str, part: int, settled: int) -> None:
    """Move a share towards that of the newest items, weighted by their number."""
    if settled:
        before, newest = gauge.get(kind), part / settled
        weight = 1 - math.exp(-settled / RATE_MEMORY_ITEMS)
        gauge.set(newest if before is None else before + weight * (newest - before), kind)
