"""Measuring a process and its children, if settings say so.

prometheus_client is imported where it is used: it takes a tenth of a second that children and commands need not spend.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from tidemill.config import Settings
from tidemill.telemetry.events import subscribe
from tidemill.telemetry.relay import listening

if TYPE_CHECKING:
    from tidemill.telemetry.metrics import Meter


@contextmanager
def metered(
    settings: Settings, providers: Mapping[str, str] | None = None, *, only: bool = False
) -> "Iterator[Meter | None]":
    """Metrics of this process and of the children it has, for whoever serves them; None when they are switched off.

    With ``only``, of no other kinds than those whose providers are given.
    """
    if not settings.enable_metrics:
        yield None
        return
    from tidemill.telemetry.metrics import Meter  # noqa: PLC0415

    meter = Meter(providers, only=only)
    unsubscribe = subscribe(meter.hear, children=True)
    try:
        yield meter
    finally:
        unsubscribe()


@asynccontextmanager
async def measuring(settings: Settings, providers: Mapping[str, str]) -> AsyncIterator[dict[str, str]]:
    """For the parent of a worker: metrics on its port, if it has one. What its children need in their environment."""
    if not settings.enable_metrics:
        yield {}
        return
    async with listening() as environment:
        if settings.metrics_port is None:
            yield environment  # another part of this process may have metrics to serve
            return
        from tidemill.telemetry.endpoint import serving  # noqa: PLC0415

        with metered(settings, providers, only=True) as meter:
            assert meter is not None  # noqa: S101  they are switched on
            async with serving(meter, settings.metrics_host, settings.metrics_port, settings.metrics_path):
                yield environment
