"""Reports the state of the adaptive controllers of a child process to its parent, which shows it to users."""

from typing import Any

from tidemill.engine.concurrency import AdaptiveSemaphore
from tidemill.engine.context import EngineContext
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.store.jsonb import encode_json

ADAPTIVE_STATE_INTERVAL_S = 1.0


class AdaptiveStateLoop(PeriodicLoop):
    """Writes the state of every controller of this process into shared memory, about once a second."""

    name = "insight"

    def __init__(self, context: EngineContext) -> None:
        super().__init__()
        self._context = context

    async def tick(self) -> float:
        self._context.limiter_registry.emit_limiter_usage()
        state = collect_adaptive_state(self._context)
        while not self._context.shared_state.adaptive_text.write(encode_json(state)):
            kinds = state["kinds"]  # the text is too long: leave out the newest half of the kinds
            state["kinds"] = dict(list(kinds.items())[: len(kinds) // 2])
        return ADAPTIVE_STATE_INTERVAL_S


def collect_adaptive_state(context: EngineContext) -> dict[str, Any]:
    """Return the state of the controllers of this process, for users and metrics."""
    database, load, chunk = context.db.stats, context.sizing.load_monitor.get_recent_load(), context.sizing.chunk
    return {
        "kinds": {
            kind: _collect_kind_state(context, semaphore) for kind, semaphore in context.semaphore_by_kind.items()
        },
        "ingest": {"chunk_rows": chunk.rows, "average_ms": _round_or_none(chunk.average_ms)},
        "database": {
            "latency_ms": _round_or_none(database.latency_ms),
            "pool_wait_ms": _round_or_none(database.pool_wait_ms),
            "failures": database.failures,
        },
        "waiting": context.limiter_registry.count_waiters(),
        "pressure": {
            "cpu": load.cpu,
            "memory": load.memory,
            "time": load.claim_time_factor,
            "room": load.claim_size_factor,
        },
    }


def _collect_kind_state(context: EngineContext, semaphore: AdaptiveSemaphore) -> dict[str, Any]:
    handler = context.handlers.get(semaphore.kind)
    claim_size = context.sizing.compute_claim_size(
        handler,
        slots=semaphore.slots,
        permits_per_s=context.limiter_registry.get_rate_per_s(handler),
    )
    return {
        "provider": handler.limiter or handler.kind,
        "item_ms": _round_or_none(context.sizing.pace_by_kind[semaphore.kind].item_ms),
        "claim_size": claim_size,
        "lease_s": _round_or_none(context.sizing.compute_lease_seconds(semaphore.kind, claim_size)),
        "concurrency": semaphore.slots,
        "max_concurrency": semaphore.max_slots,
        "gap_ms": _round_or_none(semaphore.start_gap_s * 1000),
        "throttled": semaphore.throttled_total,
        "error_rate": round(semaphore.controller.error_rate.share, 3),
        "retry_spacing": round(semaphore.backoff_factor, 2),
    }


def _round_or_none(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
