"""Tests of metrics: the counts, and the limited number of labels."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.telemetry.child_events import MEASURED_EVENTS
from tidemill.telemetry.events import Event
from tidemill.telemetry.metric_labels import MAX_LABEL_VALUES, OTHER_LABEL, BoundedLabel, count_by_known_code
from tidemill.telemetry.metrics import ExpiringGauge, MetricsSubscriber

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "telemetry.md"
FLUSHED: dict[str, Any] = {"items": 0, "done": 0, "not_found": 0, "skipped": 0, "failed": 0, "retried": 0, "codes": {}}
FLUSHED |= {"fill": 0.5, "ms": 3.0, "kind": "k"}


def shown(meter: MetricsSubscriber) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the values of all series by name and label values."""
    text = meter.render()[0].decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def meter() -> MetricsSubscriber:
    return MetricsSubscriber({"k": "shop", "mail": "mail"}, only_these_kinds=True)


def flush(meter: MetricsSubscriber, **fields: Any) -> None:
    meter.record_event(Event("batch.flushed", FLUSHED | fields))


def test_flush_metrics_count_items_by_status_and_failures_by_code(meter: MetricsSubscriber) -> None:
    flush(meter, items=10, done=6, failed=3, retried=1, codes={"timeout": 2, "a code of a handler": 1})
    flush(meter, items=5, done=5)
    seen = shown(meter)
    assert seen["tidemill_items_total", ("k", "done")] == 11
    assert seen["tidemill_items_total", ("k", "failed")] == 3
    assert seen["tidemill_failures_total", ("timeout", "k")] == 2
    assert seen["tidemill_failures_total", (OTHER_LABEL, "k")] == 1
    assert seen["tidemill_flush_items_sum", ("k",)] == 15
    assert seen["tidemill_flush_ms_count", ("k",)] == 2
    assert seen["tidemill_buffer_fill_bucket", ("k", "0.5")] == 2


def test_flush_metrics_without_duration_record_no_histogram(meter: MetricsSubscriber) -> None:
    flush(meter, items=4, done=4, ms=None, fill=None)
    seen = shown(meter)
    assert seen["tidemill_items_total", ("k", "done")] == 4
    assert ("tidemill_flush_ms_count", ("k",)) not in seen


def test_rate_metrics_follow_recent_items_weighted_by_count(meter: MetricsSubscriber) -> None:
    flush(meter, items=100, failed=50, done=50)
    assert shown(meter)["tidemill_error_rate", ("k",)] == 0.5
    flush(meter, items=10, done=10)
    little = shown(meter)["tidemill_error_rate", ("k",)]
    assert 0.49 < little < 0.5
    flush(meter, items=5_000, done=4_000, not_found=1_000)
    seen = shown(meter)
    assert seen["tidemill_error_rate", ("k",)] < 0.01
    assert 0.19 < seen["tidemill_not_found_rate", ("k",)] <= 0.2


def test_rate_metrics_ignore_retried_items(meter: MetricsSubscriber) -> None:
    flush(meter, items=100, retried=100)
    assert ("tidemill_error_rate", ("k",)) not in shown(meter)


def test_throttle_metrics_are_counted_per_provider(meter: MetricsSubscriber) -> None:
    meter.record_event(
        Event("item.retry", {"kind": "k", "items": 9, "codes": {"throttled": 4, "429": 2, "timeout": 1}})
    )
    seen = shown(meter)
    assert seen["tidemill_throttles_total", ("k", "shop")] == 6
    assert seen["tidemill_retries_total", ("throttled", "k")] == 6
    assert seen["tidemill_retries_total", ("timeout", "k")] == 1
    assert seen["tidemill_retries_total", (OTHER_LABEL, "k")] == 2


def test_kinds_of_other_mills_share_one_label(meter: MetricsSubscriber) -> None:
    for n in range(1_000):
        flush(meter, items=1, done=1, kind=f"kind-{n}")
    assert shown(meter)["tidemill_items_total", (OTHER_LABEL, "done")] == 1_000


def test_throttle_metrics_label_registered_and_unregistered_kinds() -> None:
    meter = MetricsSubscriber({"k": "shop"})
    for kind in ("k", "mail"):
        meter.record_event(Event("item.retry", {"kind": kind, "items": 1, "codes": {"throttled": 1}}))
    seen = shown(meter)
    assert seen["tidemill_throttles_total", ("k", "shop")] == 1
    assert seen["tidemill_throttles_total", ("mail", "mail")] == 1


def test_adaptive_state_metrics_are_removed_when_child_stops(meter: MetricsSubscriber) -> None:
    pressure = {"cpu": 2.5, "memory": 0.4, "time": 0.8, "room": 1.0}
    told = {"child": 3, "kinds": {"k": {"lease_s": 12.5, "retry_spacing": 2.0}}, "pressure": pressure}
    meter.record_event(Event("worker.adapted", {"children": [told]}))
    seen = shown(meter)
    assert seen["tidemill_lease_seconds", ("3", "k")] == 12.5
    assert seen["tidemill_retry_spacing", ("3", "k")] == 2.0
    assert {labels[1]: value for (name, labels), value in seen.items() if name == "tidemill_pressure"} == pressure
    meter.record_event(Event("child.stopped", {"child": 3}))
    assert not [name for name, _ in shown(meter) if name in ("tidemill_lease_seconds", "tidemill_pressure")]


def test_metric_label_values_are_limited() -> None:
    meter = MetricsSubscriber()
    for n in range(500):
        flush(meter, items=1, done=1, kind=f"kind-{n}", codes={})
        meter.record_event(Event("request.done", {"route": f"/{n}", "method": f"M{n}", "status": 200, "ms": 1}))
        meter.record_event(Event("page.listed", {"list": f"list {n}", "ms": 1}))
    seen = shown(meter)
    requests = [labels for name, labels in seen if name == "tidemill_http_requests_total"]
    assert len(requests) == MAX_LABEL_VALUES + 1
    assert {method for method, _, _ in requests} == {OTHER_LABEL}
    assert len([1 for name, _ in seen if name == "tidemill_items_total"]) == MAX_LABEL_VALUES + 1
    assert len([1 for name, _ in seen if name == "tidemill_page_ms_count"]) == MAX_LABEL_VALUES + 1


def test_bounded_label_keeps_first_values() -> None:
    words = BoundedLabel()
    assert [words(n) for n in range(MAX_LABEL_VALUES)] == [str(n) for n in range(MAX_LABEL_VALUES)]
    assert words("one more") == OTHER_LABEL
    assert words(0) == "0"


def test_error_code_counts_add_up_to_total() -> None:
    assert count_by_known_code({"timeout": 2, "mine": 5}, 9) == {"timeout": 2, OTHER_LABEL: 7}
    assert count_by_known_code({}, 0) == {}


def test_child_metrics_follow_started_and_stopped_children(meter: MetricsSubscriber) -> None:
    for child in range(3):
        meter.record_event(Event("child.started", {"child": child}))
        changed = {"kind": "k", "child": child, "was": 50, "now": 7, "reason": "throttled"}
        meter.record_event(Event("concurrency.changed", changed))
    meter.record_event(Event("child.died", {"child": 0, "cause": "killed"}))
    meter.record_event(Event("child.stopped", {"child": 2, "cause": "stopped"}))
    seen = shown(meter)
    assert {labels: value for (name, labels), value in seen.items() if name == "tidemill_concurrency"} == {
        ("1", "k"): 7
    }
    assert seen["tidemill_children", ()] == 1
    assert seen["tidemill_children_died_total", ("killed",)] == 1


def test_queue_metrics_appear_after_first_sample(meter: MetricsSubscriber) -> None:
    assert ("tidemill_pending_count", ()) not in shown(meter)
    meter.record_event(Event("queue.sampled", {"pending": 5, "processing": 2, "retry_wait": 1, "oldest_s": 3.5}))
    seen = shown(meter)
    assert seen["tidemill_queue_depth", ("pending",)] == 5
    assert seen["tidemill_queue_oldest_seconds", ()] == 3.5
    assert seen["tidemill_pending_count", ()] == 8


def test_gauge_expires_when_not_updated() -> None:
    now = 100.0
    gauge = ExpiringGauge("tidemill_test", "A test", (), seconds=30)
    gauge._clock = lambda: now
    gauge.set(7)
    assert [sample.value for family in gauge.collect() for sample in family.samples] == [7]
    now = 131.0
    assert [family.samples for family in gauge.collect()] == [[]]


def test_database_latency_metric_is_moving_average(meter: MetricsSubscriber) -> None:
    for ms in (10, 20):
        meter.record_event(Event("database.latency", {"ms": ms, "transactions": 5}))
    assert shown(meter)["tidemill_db_latency_ewma_ms", ()] == pytest.approx(13)


def test_lost_lease_metrics_are_labelled_by_detector(meter: MetricsSubscriber) -> None:
    meter.record_event(Event("batch.stale", {"kind": "k", "items": 12}))
    meter.record_event(Event("batch.swept", {}))
    meter.record_event(Event("ingest.stale", {}))
    seen = shown(meter)
    assert seen["tidemill_stale_results_total", ("k",)] == 12
    assert {labels for name, labels in seen if name == "tidemill_lease_losses_total"} == {
        ("flush",),
        ("sweep",),
        ("reader",),
    }


def test_metrics_are_rendered_as_openmetrics_when_accepted(meter: MetricsSubscriber) -> None:
    body, content_type = meter.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    assert meter.render()[1].startswith("text/plain")


def test_metrics_contain_no_created_series(meter: MetricsSubscriber) -> None:
    flush(meter, items=1, done=1)
    assert b"_created" not in meter.render()[0]


def test_metrics_table_in_docs_matches_exposed_metrics() -> None:
    documented = re.findall(r"^\| `(tidemill_\w+)` \| (\w+) \| ([\w, ]*)\|", DOCS.read_text(), re.MULTILINE)
    text = MetricsSubscriber().render()[0].decode()
    exposed = re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE)
    assert [(name, kind) for name, kind, _ in documented] == exposed
    labels = {collector._name: collector._labelnames for collector in _library_metrics()}
    for name, _, said in documented:
        known = labels.get(name.removesuffix("_total"))
        assert known is None or known == tuple(said.strip().split(", ") if said.strip() else ()), name


def _library_metrics() -> list[Any]:
    collectors = MetricsSubscriber().families._registry._collector_to_names
    return [collector for collector in collectors if hasattr(collector, "_labelnames")]


def test_children_relay_every_measured_event() -> None:
    only_of_parents = {
        "job.submitted",
        "batch.swept",
        "queue.sampled",
        "worker.adapted",
        "worker.started",
        "worker.stopped",
        "child.started",
        "child.stopped",
        "child.died",
        "page.listed",
        "request.done",
        "broker.lost",
        "broker.found",
        "hint.heard",
        "hint.dropped",
        "hint.quarantined",
        "hints.sent",
        "hints.resent",
        "outbox.sampled",
    }
    assert set(MetricsSubscriber()._listeners) - only_of_parents == MEASURED_EVENTS


def test_counters_of_alerts_start_at_zero() -> None:
    """Prometheus cannot see the increase of a counter that appears with its first event."""
    meter = MetricsSubscriber({"k": "shop"}, only_these_kinds=True)
    seen = shown(meter)
    assert seen["tidemill_children_died_total", ("crashed",)] == 0
    assert seen["tidemill_lease_losses_total", ("sweep",)] == 0
    assert seen["tidemill_items_total", ("k", "failed")] == 0
    assert seen["tidemill_stale_results_total", ("k",)] == 0
    for module in ("app.worker", "watches.scanner", "engine.ingester", "engine.adaptive_state_report"):
        importlib.import_module(f"tidemill.{module}")
    classes = [one for one in PeriodicLoop.__subclasses__() if one.__module__.startswith("tidemill.")]  # not of tests
    loops = {loop.name for loop in classes if hasattr(loop, "name")}
    assert len(loops) >= 9
    assert {("tidemill_loop_failures_total", (name,)) for name in loops} <= seen.keys()


def test_alert_no_worker_fires_for_service_with_kickoff_children_only(meter: MetricsSubscriber) -> None:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    (expr,) = [rule["expr"] for rule in group["rules"] if rule["alert"] == "TidemillNoWorker"]
    absent, total = re.fullmatch(r"absent\((\w+)\) or sum\((\w+)\) == 0", expr).groups()  # type: ignore[union-attr]

    def fires() -> bool:
        values = [value for (name, _), value in shown(meter).items() if name in (absent, total)]
        return not values or sum(values) == 0

    meter.record_event(Event("worker.started", {"worker": "slices", "on_demand": True}))
    meter.record_event(Event("child.started", {"child": 0}))
    assert fires()
    meter.record_event(Event("worker.started", {"worker": "w", "on_demand": False}))
    assert not fires()
    meter.record_event(Event("worker.stopped", {"worker": "slices", "on_demand": True}))
    assert not fires()
    meter.record_event(Event("worker.stopped", {"worker": "w", "on_demand": False}))
    assert fires()
