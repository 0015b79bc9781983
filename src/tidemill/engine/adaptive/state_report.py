"""What a child tells its parent of how it adapts; the parent shows it to whoever asks."""

from typing import Any

from tidemill.engine.concurrency import AdaptiveSemaphore
from tidemill.engine.context import EngineContext
from tidemill.engine.loop import Loop
from tidemill.store.jsonb import encode_json

ADAPTIVE_STATE_INTERVAL_S = 1.0


class AdaptiveStateLoop(Loop):
    """Writes the state of every controller of this process into the logbook, about once a second."""

    name = "insight"

    def __init__(self, context: EngineContext) -> None:
        super().__init__()
        self._context = context

    async def tick(self) -> float:
        self._context.limiter_registry.report_usage()
        state = collect_adaptive_state(self._context)
        while not self._context.shared_state.adaptive_text.write(
            encode_json(state)
        ):  # too many kinds: those seen last are left out
            kinds = state["kinds"]
            state["kinds"] = dict(list(kinds.items())[: len(kinds) // 2])
        return ADAPTIVE_STATE_INTERVAL_S


def collect_adaptive_state(context: EngineContext) -> dict[str, Any]:
    """What the controllers of this process have come to, for people and metrics."""
    signals, strain = context.db.stats, context.load_monitor.read_load()
    return {
        "kinds": {kind: _collect_kind_state(context, crew) for kind, crew in context.semaphore_by_kind.items()},
        "ingest": {"chunk_rows": context.chunk_size.rows, "average_ms": _round_or_none(context.chunk_size.average_ms)},
        "database": {
            "latency_ms": _round_or_none(signals.latency_ms),
            "pool_wait_ms": _round_or_none(signals.pool_wait_ms),
            "failures": signals.failures,
        },
        "waiting": context.limiter_registry.count_waiters(),
        "pressure": {
            "cpu": strain.cpu,
            "memory": strain.memory,
            "time": strain.claim_time_factor,
            "room": strain.claim_size_factor,
        },
    }


def _collect_kind_state(context: EngineContext, crew: AdaptiveSemaphore) -> dict[str, Any]:
    handler = context.handlers.get(crew.kind)
    claim_size = context.claim_size(handler)
    return {
        "provider": handler.limiter or handler.kind,
        "item_ms": _round_or_none(context.get_pace(crew.kind).item_ms),
        "claim_size": claim_size,
        "lease_s": _round_or_none(context.lease_seconds(crew.kind, claim_size)),
        "concurrency": crew.slots,
        "max_concurrency": crew.max_slots,
        "gap_ms": _round_or_none(crew.start_gap_s * 1000),
        "throttled": crew.throttled_total,
        "error_rate": round(crew.controller.error_rate.share, 3),
        "retry_spacing": round(crew.retry_spacing, 2),
    }


def _round_or_none(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
