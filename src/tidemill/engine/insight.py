"""What a child tells its parent of how it adapts; the parent shows it to whoever asks."""

from typing import Any

from tidemill.engine.context import Context
from tidemill.engine.crew import Crew
from tidemill.engine.service import Service
from tidemill.store.json import encode

EVERY_S = 1.0


class Insight(Service):
    """Writes the state of every controller of this process into the logbook, about once a second."""

    name = "insight"

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    async def tick(self) -> float:
        self._context.limits.tell()
        state = adaptive(self._context)
        while not self._context.book.note.write(encode(state)):  # too many kinds: those seen last are left out
            kinds = state["kinds"]
            state["kinds"] = dict(list(kinds.items())[: len(kinds) // 2])
        return EVERY_S


def adaptive(context: Context) -> dict[str, Any]:
    """What the controllers of this process have come to, for people and metrics."""
    signals, strain = context.db.signals, context.machine.strain()
    return {
        "kinds": {kind: _of_kind(context, crew) for kind, crew in context.crews.items()},
        "ingest": {"chunk_rows": context.chunk.rows, "average_ms": _rounded(context.chunk.average_ms)},
        "database": {
            "latency_ms": _rounded(signals.latency_ms),
            "pool_wait_ms": _rounded(signals.pool_wait_ms),
            "failures": signals.failures,
        },
        "waiting": context.limits.waiting(),
        "pressure": {"cpu": strain.cpu, "memory": strain.memory, "time": strain.time, "room": strain.room},
    }


def _of_kind(context: Context, crew: Crew) -> dict[str, Any]:
    handler = context.handlers.get(crew.kind)
    claim_size = context.claim_size(handler)
    return {
        "provider": handler.limiter or handler.kind,
        "item_ms": _rounded(context.pace(crew.kind).item_ms),
        "claim_size": claim_size,
        "lease_s": _rounded(context.lease_seconds(crew.kind, claim_size)),
        "concurrency": crew.places,
        "max_concurrency": crew.high,
        "gap_ms": _rounded(crew.gap_s * 1000),
        "throttled": crew.throttled,
        "error_rate": round(crew.control.errors.share, 3),
        "retry_spacing": round(crew.spacing, 2),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
