"""Events as metrics: what is counted, and that labels stay few."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidemill.telemetry.families import Gauge
from tidemill.telemetry.labels import MOST, OTHER, Words, by_code
from tidemill.telemetry.metrics import Meter
from tidemill.telemetry.relay import MEASURED

DOCS = Path(__file__).parents[2] / "docs" / "telemetry.md"
FLUSHED: dict[str, Any] = {"items": 0, "done": 0, "not_found": 0, "skipped": 0, "failed": 0, "retried": 0, "codes": {}}
FLUSHED |= {"fill": 0.5, "ms": 3.0, "kind": "k"}


def shown(meter: Meter) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every series: its name and the values of its labels."""
    text = meter.render()[0].decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def meter() -> Meter:
    return Meter({"k": "shop", "mail": "mail"}, only=True)


def flush(meter: Meter, **fields: Any) -> None:
    meter.hear("batch.flushed", FLUSHED | fields)


def test_items_are_counted_by_status_and_failures_by_code(meter: Meter) -> None:
    flush(meter, items=10, done=6, failed=3, retried=1, codes={"timeout": 2, "a code of a handler": 1})
    flush(meter, items=5, done=5)
    seen = shown(meter)
    assert seen["tidemill_items_total", ("k", "done")] == 11
    assert seen["tidemill_items_total", ("k", "failed")] == 3
    assert seen["tidemill_failures_total", ("timeout", "k")] == 2
    assert seen["tidemill_failures_total", (OTHER, "k")] == 1
    assert seen["tidemill_flush_items_sum", ("k",)] == 15
    assert seen["tidemill_flush_ms_count", ("k",)] == 2
    assert seen["tidemill_buffer_fill_bucket", ("k", "0.5")] == 2


def test_a_batch_that_is_written_whole_has_no_time_and_no_buffer(meter: Meter) -> None:
    flush(meter, items=4, done=4, ms=None, fill=None)
    seen = shown(meter)
    assert seen["tidemill_items_total", ("k", "done")] == 4
    assert ("tidemill_flush_ms_count", ("k",)) not in seen


def test_rates_follow_the_newest_items_the_faster_the_more_they_are(meter: Meter) -> None:
    flush(meter, items=100, failed=50, done=50)
    assert shown(meter)["tidemill_error_rate", ("k",)] == 0.5
    flush(meter, items=10, done=10)
    little = shown(meter)["tidemill_error_rate", ("k",)]
    assert 0.49 < little < 0.5
    flush(meter, items=5_000, done=4_000, not_found=1_000)
    seen = shown(meter)
    assert seen["tidemill_error_rate", ("k",)] < 0.01
    assert 0.19 < seen["tidemill_not_found_rate", ("k",)] <= 0.2


def test_retries_alone_change_no_rate(meter: Meter) -> None:
    flush(meter, items=100, retried=100)
    assert ("tidemill_error_rate", ("k",)) not in shown(meter)


def test_refusals_are_counted_for_the_provider_of_the_kind(meter: Meter) -> None:
    meter.hear("item.retry", {"kind": "k", "items": 9, "codes": {"throttled": 4, "429": 2, "timeout": 1}})
    seen = shown(meter)
    assert seen["tidemill_throttles_total", ("k", "shop")] == 6
    assert seen["tidemill_retries_total", ("throttled", "k")] == 6
    assert seen["tidemill_retries_total", ("timeout", "k")] == 1
    assert seen["tidemill_retries_total", (OTHER, "k")] == 2


def test_other_kinds_than_those_of_the_mill_are_one_word(meter: Meter) -> None:
    for n in range(1_000):
        flush(meter, items=1, done=1, kind=f"kind-{n}")
    assert shown(meter)["tidemill_items_total", (OTHER, "done")] == 1_000


def test_who_knows_some_kinds_and_serves_all_names_the_providers_of_those() -> None:
    meter = Meter({"k": "shop"})
    for kind in ("k", "mail"):
        meter.hear("item.retry", {"kind": kind, "items": 1, "codes": {"throttled": 1}})
    seen = shown(meter)
    assert seen["tidemill_throttles_total", ("k", "shop")] == 1
    assert seen["tidemill_throttles_total", ("mail", "mail")] == 1


def test_what_controllers_have_come_to_is_shown_until_the_child_ends(meter: Meter) -> None:
    pressure = {"cpu": 2.5, "memory": 0.4, "time": 0.8, "room": 1.0}
    told = {"child": 3, "kinds": {"k": {"lease_s": 12.5, "retry_spacing": 2.0}}, "pressure": pressure}
    meter.hear("worker.adapted", {"children": [told]})
    seen = shown(meter)
    assert seen["tidemill_lease_seconds", ("3", "k")] == 12.5
    assert seen["tidemill_retry_spacing", ("3", "k")] == 2.0
    assert {labels[1]: value for (name, labels), value in seen.items() if name == "tidemill_pressure"} == pressure
    meter.hear("child.stopped", {"child": 3})
    assert not [name for name, _ in shown(meter) if name in ("tidemill_lease_seconds", "tidemill_pressure")]


def test_whatever_comes_labels_stay_few() -> None:
    meter = Meter()
    for n in range(500):
        flush(meter, items=1, done=1, kind=f"kind-{n}", codes={})
        meter.hear("request.done", {"route": f"/{n}", "method": f"M{n}", "status": 200, "ms": 1})
        meter.hear("page.listed", {"list": f"list {n}", "ms": 1})
    seen = shown(meter)
    requests = [labels for name, labels in seen if name == "tidemill_http_requests_total"]
    assert len(requests) == MOST + 1
    assert {method for method, _, _ in requests} == {OTHER}
    assert len([1 for name, _ in seen if name == "tidemill_items_total"]) == MOST + 1
    assert len([1 for name, _ in seen if name == "tidemill_page_ms_count"]) == MOST + 1


def test_a_word_that_was_kept_is_kept_for_good() -> None:
    words = Words()
    assert [words(n) for n in range(MOST)] == [str(n) for n in range(MOST)]
    assert words("one more") == OTHER
    assert words(0) == "0"


def test_codes_add_up_to_the_total() -> None:
    assert by_code({"timeout": 2, "mine": 5}, 9) == {"timeout": 2, OTHER: 7}
    assert by_code({}, 0) == {}


def test_children_are_counted_as_they_come_and_go(meter: Meter) -> None:
    for child in range(3):
        meter.hear("child.started", {"child": child})
        meter.hear("concurrency.changed", {"kind": "k", "child": child, "was": 50, "now": 7, "reason": "throttled"})
    meter.hear("child.died", {"child": 0, "cause": "killed"})
    meter.hear("child.stopped", {"child": 2, "cause": "stopped"})
    seen = shown(meter)
    assert {labels: value for (name, labels), value in seen.items() if name == "tidemill_concurrency"} == {
        ("1", "k"): 7
    }
    assert seen["tidemill_children", ()] == 1
    assert seen["tidemill_children_died_total", ("killed",)] == 1


def test_the_queue_is_shown_from_when_it_is_known(meter: Meter) -> None:
    assert ("tidemill_pending_count", ()) not in shown(meter)
    meter.hear("queue.sampled", {"pending": 5, "processing": 2, "retry_wait": 1, "oldest_s": 3.5})
    seen = shown(meter)
    assert seen["tidemill_queue_depth", ("pending",)] == 5
    assert seen["tidemill_queue_oldest_seconds", ()] == 3.5
    assert seen["tidemill_pending_count", ()] == 8


def test_a_gauge_that_nobody_sets_any_more_is_silent() -> None:
    now = 100.0
    gauge = Gauge("tidemill_test", "A test", (), seconds=30)
    gauge._clock = lambda: now
    gauge.set(7)
    assert [sample.value for family in gauge.collect() for sample in family.samples] == [7]
    now = 131.0
    assert [family.samples for family in gauge.collect()] == [[]]


def test_the_latency_of_the_database_is_a_moving_average(meter: Meter) -> None:
    for ms in (10, 20):
        meter.hear("database.latency", {"ms": ms, "transactions": 5})
    assert shown(meter)["tidemill_db_latency_ewma_ms", ()] == pytest.approx(13)


def test_lost_leases_say_who_noticed(meter: Meter) -> None:
    meter.hear("batch.stale", {"kind": "k", "items": 12})
    meter.hear("batch.swept", {})
    meter.hear("ingest.stale", {})
    seen = shown(meter)
    assert seen["tidemill_stale_results_total", ("k",)] == 12
    assert {labels for name, labels in seen if name == "tidemill_lease_losses_total"} == {
        ("flush",),
        ("sweep",),
        ("reader",),
    }


def test_open_metrics_are_given_to_who_asks_for_them(meter: Meter) -> None:
    body, content_type = meter.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    assert meter.render()[1].startswith("text/plain")


def test_nothing_of_the_environment_changes_what_is_shown(meter: Meter) -> None:
    flush(meter, items=1, done=1)
    assert b"_created" not in meter.render()[0]


def test_the_table_of_metrics_is_what_is_shown() -> None:
    documented = re.findall(r"^\| `(tidemill_\w+)` \| (\w+) \| ([\w, ]*)\|", DOCS.read_text(), re.MULTILINE)
    text = Meter().render()[0].decode()
    exposed = re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE)
    assert [(name, kind) for name, kind, _ in documented] == exposed
    labels = {collector._name: collector._labelnames for collector in _library_metrics()}
    for name, _, said in documented:
        known = labels.get(name.removesuffix("_total"))
        assert known is None or known == tuple(said.strip().split(", ") if said.strip() else ()), name


def _library_metrics() -> list[Any]:
    collectors = Meter().families._registry._collector_to_names
    return [collector for collector in collectors if hasattr(collector, "_labelnames")]


def test_children_hand_on_what_is_measured() -> None:
    only_of_parents = {
        "job.submitted",
        "batch.swept",
        "queue.sampled",
        "worker.adapted",
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
    assert set(Meter()._listeners) - only_of_parents == MEASURED
