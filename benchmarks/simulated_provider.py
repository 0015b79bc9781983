"""A simulation of worker processes that call a provider with a rate limit.

Each process is an ``AdaptiveSemaphore`` of ``tidemill.engine.concurrency``, as in a worker. The provider and the
clock are simulated: events in a heap, random numbers from a seed, no database, no network, no real time.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidemill.core.outcome import Done, Outcome, Retry
from tidemill.engine.concurrency import AdaptiveSemaphore

REFUSAL_S = 0.005  # a 429 response arrives quickly


class Provider:
    """Accept ``rate`` requests per second, with a burst of a tenth of that; throttle all others."""

    def __init__(self, rate: float, latency_s: float, rng: random.Random, retry_after_s: float | None = None) -> None:
        self.rate = rate
        self.latency_s = latency_s
        self.failing = 0.0  # the share of requests that end in an error
        self._retry_after_s = retry_after_s
        self._rng = rng
        self._tokens = max(1.0, rate / 10)
        self._filled_at = 0.0

    @property
    def sustainable(self) -> float:
        """The highest number of concurrent requests without throttling."""
        return self.rate * self.latency_s

    def ask(self, now: float) -> tuple[float, Outcome]:
        """Return the duration of the response, and the outcome."""
        self._tokens = min(max(1.0, self.rate / 10), self._tokens + (now - self._filled_at) * self.rate)
        self._filled_at = now
        if self._tokens < 1:
            return REFUSAL_S, Retry("429", after=self._retry_after_s, throttled=True)
        self._tokens -= 1
        took = self.latency_s * self._rng.uniform(0.8, 1.2)
        return took, Retry("500") if self._rng.random() < self.failing else Done()


@dataclass(frozen=True, slots=True)
class Second:
    """One second of a simulation; ``levels`` are per process, the counts are totals."""

    levels: tuple[float, ...]
    places: int
    sustainable: float
    spacing: float
    done: int
    throttled: int
    failed: int

    @property
    def level(self) -> float:
        return sum(self.levels)


class Simulation:
    """Processes (``crews``) whose slots call the provider for one item after another, as the slots of a worker do."""

    def __init__(self, provider: Provider, crews: list[AdaptiveSemaphore]) -> None:
        self.provider = provider
        self.seconds: list[Second] = []
        self._crews = crews
        self._taken = [0] * len(crews)
        self._now = 0.0
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._counts: Counter[str] = Counter()

    def run(self, seconds: float) -> list[Second]:
        """Simulate ``seconds``; return an entry for each second."""
        end, before = self._now + seconds, len(self.seconds)
        self._fill()
        while self._events and self._events[0][0] <= end:
            at, _, happen = heapq.heappop(self._events)
            self._pass_to(at)
            happen()
            self._fill()
        self._pass_to(end)
        return self.seconds[before:]

    def _fill(self) -> None:
        """Start an item in every free slot, at once or at the next permitted start."""
        for number, crew in enumerate(self._crews):
            while self._taken[number] < crew.slots:
                self._taken[number] += 1
                wait = crew.reserve_start(self._now) if crew.start_gap_s else 0.0
                self._after(max(0.0, wait), partial(self._ask, number))

    def _ask(self, number: int) -> None:
        took, outcome = self.provider.ask(self._now)
        self._after(took, partial(self._come_back, number, self._now, outcome))

    def _come_back(self, number: int, started: float, outcome: Outcome) -> None:
        crew = self._crews[number]
        throttled = crew.record_outcome(outcome, started, self._now)
        self._counts["throttled" if throttled else "failed" if isinstance(outcome, Retry) else "done"] += 1
        rest = crew.slot_cooldown_s(outcome.after) if isinstance(outcome, Retry) and throttled else 0.0
        self._after(rest, partial(self._free, number))

    def _free(self, number: int) -> None:
        self._taken[number] -= 1

    def _after(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._numbers), happen))

    def _pass_to(self, when: float) -> None:
        """Advance the clock; record an entry at every full second."""
        while len(self.seconds) + 1 <= when:
            levels = tuple(crew.controller.level for crew in self._crews)
            self.seconds.append(
                Second(
                    levels,
                    sum(crew.slots for crew in self._crews),
                    self.provider.sustainable,
                    max(crew.backoff_factor for crew in self._crews),
                    self._counts["done"],
                    self._counts["throttled"],
                    self._counts["failed"],
                )
            )
            self._counts.clear()
        self._now = when


def simulate(
    rate: float,
    latency_s: float,
    *,
    high: int = 50,
    crews: int = 1,
    retry_after_s: float | None = None,
    seed: int = 1,
) -> Simulation:
    """Return a simulation of a provider and ``crews`` processes of up to ``high`` concurrent items each."""
    provider = Provider(rate, latency_s, random.Random(seed), retry_after_s)
    return Simulation(provider, [AdaptiveSemaphore("simulated", high, now=0.0) for _ in range(crews)])
