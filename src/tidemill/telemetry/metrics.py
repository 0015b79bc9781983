"""Events as metrics for Prometheus."""

import math
from collections.abc import Mapping
from typing import Any

from prometheus_client.exposition import choose_encoder

from tidemill.core.status import ItemStatus
from tidemill.telemetry.metric_families import ExpiringGauge, MetricFamilies
from tidemill.telemetry.metric_labels import HTTP_METHOD_LABELS, BoundedLabel, count_by_code, count_throttled

LATENCY_AVERAGE_WEIGHT = 0.3  # of the newest second, in the moving average of the database's latency
RATE_MEMORY_ITEMS = 1_000  # settled items after which a share of them has mostly forgotten the older ones
SETTLED_STATUSES = (ItemStatus.DONE, ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.FAILED)


class MetricsSubscriber:
    """A subscriber of events; ``render`` is what Prometheus reads.

    ``providers`` says for each kind whom its handler calls, by the name of its limiter. With ``only`` it is also every
    kind there is, and others are ``other``. Without that the first hundred kinds that come are kept.
    """

    def __init__(self, providers: Mapping[str, str] | None = None, *, only_these_kinds: bool = False) -> None:
        self.families = MetricFamilies()
        self._providers = providers or {}
        self._kind = BoundedLabel(frozenset(self._providers) if only_these_kinds else None)
        self._method = BoundedLabel(HTTP_METHOD_LABELS)
        self._route, self._list, self._verb, self._loop = BoundedLabel(), BoundedLabel(), BoundedLabel(), BoundedLabel()
        self._limiter = BoundedLabel()
        self._children = 0
        told = (name for name in vars(MetricsSubscriber) if name.startswith("_on_"))
        self._listeners = {name.removeprefix("_on_").replace("_", ".", 1): getattr(self, name) for name in told}

    def record_event(self, name: str, fields: dict[str, Any]) -> None:
        listener = self._listeners.get(name)
        if listener is not None:
            listener(fields)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics, and their content type, in the format that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self.families), content_type

    def _get_kind_label(self, fields: dict[str, Any]) -> str:
        return self._kind(fields.get("kind", ""))

    def _on_job_submitted(self, fields: dict[str, Any]) -> None:
        self.families.jobs_submitted.labels(self._get_kind_label(fields)).inc()

    def _on_job_closed(self, fields: dict[str, Any]) -> None:
        self.families.jobs_closed.labels(self._get_kind_label(fields), fields["closed_as"]).inc()

    def _on_ingest_chunk(self, fields: dict[str, Any]) -> None:
        kind = self._get_kind_label(fields)
        self.families.ingest_ms.labels(kind).observe(fields["ms"])
        self.families.ingest_rows.labels(kind).inc(fields["hi"] - fields["lo"])
        self.families.ingest_chunk_rows.labels(kind).observe(fields["hi"] - fields["lo"])

    def _on_ingest_stale(self, _: dict[str, Any]) -> None:
        self.families.lease_losses.labels("reader").inc()

    def _on_batch_claimed(self, fields: dict[str, Any]) -> None:
        self.families.claim_items.labels(self._get_kind_label(fields)).observe(fields["size"])

    def _on_concurrency_changed(self, fields: dict[str, Any]) -> None:
        self.families.concurrency.set(fields["now"], self._get_kind_label(fields), str(fields.get("child", "")))

    def _on_worker_adapted(self, fields: dict[str, Any]) -> None:
        for told in fields["children"]:
            child = str(told["child"])
            for kind, state in told["kinds"].items():
                self.families.lease_length.set(state["lease_s"], self._kind(kind), child)
                self.families.retry_spacing.set(state["retry_spacing"], self._kind(kind), child)
            for name, value in told["pressure"].items():
                self.families.pressure.set(value, child, name)

    def _on_limiter_taken(self, fields: dict[str, Any]) -> None:
        limiter = self._limiter(fields["limiter"])
        self.families.limiter_permits.labels(limiter).inc(fields["permits"])
        self.families.limiter_waited.labels(limiter).inc(fields["waited_s"])

    def _on_limiter_blocked(self, fields: dict[str, Any]) -> None:
        limiter = self._limiter(fields["limiter"])
        self.families.limiter_blocked.labels(limiter).inc(fields["seconds"])
        self.families.limiter_refusals.labels(limiter).inc(fields["refusals"])

    def _on_limiter_slowed(self, fields: dict[str, Any]) -> None:
        self.families.limiter_share.set(fields["share"], self._limiter(fields["limiter"]))

    def _on_batch_flushed(self, fields: dict[str, Any]) -> None:
        families, kind = self.families, self._get_kind_label(fields)
        families.flush_items.labels(kind).observe(fields["items"])
        if fields["ms"] is not None:
            families.flush_ms.labels(kind).observe(fields["ms"])
        if fields["fill"] is not None:
            families.buffer_fill.labels(kind).observe(fields["fill"])
        for status in SETTLED_STATUSES:
            if fields[status]:
                families.items.labels(kind, status).inc(fields[status])
        for code, n in count_by_code(fields["codes"], fields["failed"]).items():
            families.failures.labels(kind, code).inc(n)
        settled = sum(fields[status] for status in SETTLED_STATUSES)
        _update_moving_rate(families.error_rate, kind, fields["failed"], settled)
        _update_moving_rate(families.not_found_rate, kind, fields["not_found"], settled)

    def _on_batch_stale(self, fields: dict[str, Any]) -> None:
        self.families.stale_results.labels(self._get_kind_label(fields)).inc(fields["items"])
        self.families.lease_losses.labels("flush").inc()

    def _on_batch_swept(self, _: dict[str, Any]) -> None:
        self.families.lease_losses.labels("sweep").inc()

    def _on_item_retry(self, fields: dict[str, Any]) -> None:
        kind = self._get_kind_label(fields)
        for code, n in count_by_code(fields["codes"], fields["items"]).items():
            self.families.retries.labels(kind, code).inc(n)
        refused = count_throttled(fields["codes"])
        if refused:
            self.families.throttles.labels(kind, self._providers.get(kind, kind)).inc(refused)

    def _on_queue_sampled(self, fields: dict[str, Any]) -> None:
        families = self.families
        waiting = (ItemStatus.PENDING, ItemStatus.PROCESSING, ItemStatus.RETRY_WAIT)
        for status in waiting:
            families.queue_depth.set(fields[status], status)
        families.queue_oldest.set(fields["oldest_s"])
        families.pending_count.set(sum(fields[status] for status in waiting))

    def _on_outbox_sampled(self, fields: dict[str, Any]) -> None:
        self.families.outbox_depth.set(fields["depth"])
        self.families.outbox_oldest.set(fields["oldest_s"])
        self.families.quarantined.set(fields["quarantined"])

    def _on_broker_lost(self, _: dict[str, Any]) -> None:
        self.families.broker_up.set(0)

    def _on_broker_found(self, _: dict[str, Any]) -> None:
        self.families.broker_up.set(1)

    def _on_hints_sent(self, fields: dict[str, Any]) -> None:
        self.families.hints_ms.observe(fields["ms"])
        self.families.hints.labels("sent").inc(fields["hints"])
        self.families.hints.labels("unwanted").inc(fields["dropped"])

    def _on_hints_resent(self, fields: dict[str, Any]) -> None:
        self.families.hints.labels("resent").inc(fields["jobs"])

    def _on_hint_heard(self, _: dict[str, Any]) -> None:
        self.families.hints.labels("heard").inc()

    def _on_hint_dropped(self, _: dict[str, Any]) -> None:
        self.families.hints.labels("dropped").inc()

    def _on_hint_quarantined(self, _: dict[str, Any]) -> None:
        self.families.hints.labels("quarantined").inc()

    def _on_child_started(self, _: dict[str, Any]) -> None:
        self._count_children(+1)

    def _on_child_stopped(self, fields: dict[str, Any]) -> None:
        self._count_children(-1)
        families = self.families
        for gauge in (families.concurrency, families.lease_length, families.retry_spacing, families.pressure):
            gauge.remove_series("child", str(fields.get("child", "")))

    def _on_child_died(self, fields: dict[str, Any]) -> None:
        self._on_child_stopped(fields)
        self.families.children_died.labels(fields["cause"]).inc()

    def _count_children(self, change: int) -> None:
        self._children += change
        self.families.children.set(self._children)

    def _on_loop_failed(self, fields: dict[str, Any]) -> None:
        self.families.loop_failures.labels(self._loop(fields["loop"])).inc()

    def _on_database_latency(self, fields: dict[str, Any]) -> None:
        gauge = self.families.db_latency
        before = gauge.get()
        gauge.set(fields["ms"] if before is None else before + LATENCY_AVERAGE_WEIGHT * (fields["ms"] - before))

    def _on_database_retry(self, fields: dict[str, Any]) -> None:
        self.families.db_retries.labels(self._verb(fields["verb"])).inc()

    def _on_query_slow(self, fields: dict[str, Any]) -> None:
        self.families.slow_queries.labels(self._verb(fields["verb"])).inc()

    def _on_pool_waited(self, fields: dict[str, Any]) -> None:
        self.families.pool_wait_ms.observe(fields["ms"])

    def _on_page_listed(self, fields: dict[str, Any]) -> None:
        self.families.page_ms.labels(self._list(fields["list"])).observe(fields["ms"])

    def _on_request_done(self, fields: dict[str, Any]) -> None:
        route, method = self._route(fields["route"]), self._method(fields["method"])
        self.families.http_requests.labels(route, method, int(fields["status"])).inc()
        self.families.http_ms.labels(route, method).observe(fields["ms"])

    def _on_relay_lost(self, fields: dict[str, Any]) -> None:
        self.families.events_lost.inc(fields["events"])


def _update_moving_rate(gauge: ExpiringGauge, kind: str, part: int, settled: int) -> None:
    """Move a share towards that of the newest items, the more of them the further."""
    if settled:
        before, newest = gauge.get(kind), part / settled
        weight = 1 - math.exp(-settled / RATE_MEMORY_ITEMS)
        gauge.set(newest if before is None else before + weight * (newest - before), kind)
