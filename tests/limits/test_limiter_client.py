"""Tests that starts never exceed burst + rate x window, however late permits are used."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from limits.model import Bucket, most_above
from tidemill.limits.limiter import Limiter, compute_default_burst
from tidemill.limits.limiter_client import ClockOffsetBounds, PermitCache

A_HAIR = 1e-6  # of floating point
limiters = st.builds(
    Limiter,
    st.just("shop"),
    st.floats(0.05, 5_000),
    st.one_of(st.integers(1, 4), st.integers(1, 500)),
)


@dataclass(frozen=True)
class Visit:
    """A process that requests permits and uses them at the worst times."""

    pause: float  # since the last request, in intervals between two permits
    wanted: int
    lead: float
    trip_out: float
    trip_back: float
    lateness: list[float]  # for each permit, as a share of its validity
    returned: bool  # return all unused permits


visits = st.lists(
    st.builds(
        Visit,
        st.one_of(st.just(0.0), st.floats(0, 3), st.floats(0, 100)),
        st.integers(1, 40),
        st.floats(0, 0.05),
        st.floats(0, 0.05),
        st.floats(0, 0.05),
        st.lists(st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 1.2)), min_size=1, max_size=5),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


@given(limiters, visits, st.floats(0, 0.2))
@settings(max_examples=400, deadline=None)
def test_limiter_rate_is_kept_when_permits_are_used_late(limiter: Limiter, coming: list[Visit], reach: float) -> None:
    assert limiter.rate is not None
    bucket, clock, used = Bucket(limiter, limiter.bucket_depth), 1000.0, list[float]()
    fit: ClockOffsetBounds | None = None
    for visit in coming:
        clock += visit.pause / limiter.rate
        starts = bucket.take(clock, visit.wanted, lead=visit.lead, reach=reach)
        # The local clock equals the database's clock here; a process knows only the bounds from its round trips.
        trip = ClockOffsetBounds.from_round_trip(clock - visit.trip_out, clock + visit.trip_back, clock)
        fit = trip if fit is None else fit.narrow(trip)
        if fit.high - fit.low > limiter.permit_validity_s / 2:
            continue  # the network is slower than the slack of the limiter
        stock = PermitCache()
        stock.add_permits(starts, fit, limiter.permit_validity_s)
        for place in range(visit.wanted):
            begins = stock.next_valid_from
            if begins is None:
                break
            late = visit.lateness[place % len(visit.lateness)]
            moment = stock.take_valid_permit(begins + late * limiter.permit_validity_s)
            if moment is not None:
                used.append(begins + late * limiter.permit_validity_s)
        if visit.returned:
            bucket.spare += stock.drain()
    assert most_above(sorted(used), limiter.rate, limiter.burst) <= A_HAIR


@given(limiters)
def test_limiter_pace_is_within_5_percent_of_rate_and_exact_with_burst(
    limiter: Limiter,
) -> None:
    assert limiter.rate is not None
    assert limiter.permits_per_s is not None
    assert limiter.rate / 1.051 <= limiter.permits_per_s <= limiter.rate
    assert limiter.burst == 1 or limiter.permits_per_s == limiter.rate
    assert 1 <= limiter.bucket_depth <= limiter.burst


def test_default_burst_is_permits_of_100_ms() -> None:
    assert [compute_default_burst(rate) for rate in (0.1, 5, 50, 1_000)] == [2, 2, 5, 100]
