"""Converts events to metrics for Prometheus."""

import math
from collections.abc import Mapping

from prometheus_client.exposition import choose_encoder

from tidemill.core.status import ItemStatus
from tidemill.telemetry.events import Event, Subscriber
from tidemill.telemetry.metric_families import (
    HTTP_METHOD_LABELS,
    MAX_LABEL_VALUES,
    SETTLED_STATUSES,
    BoundedLabel,
    ExpiringGauge,
    MetricFamilies,
    count_by_known_code,
    count_throttled,
)

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
