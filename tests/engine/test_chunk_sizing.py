"""Simulations of the chunk size with a database that is fast, slow, short of connections, or failing."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.sizing import MAX_CHUNK_BACKOFF_S, ChunkSize


def chunk() -> ChunkSize:
    return ChunkSize.start_at_minimum(min_rows=64, max_rows=20_000, good_ms=50, bad_ms=500)


def test_chunk_size_doubles_while_database_is_fast() -> None:
    size, sizes = chunk(), []
    for _ in range(10):
        sizes.append(size.rows)
        size = size.adjust_to_chunk(5)
    assert sizes == [64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 20_000]


def test_chunk_size_halves_after_slow_chunk_and_recovers() -> None:
    size = ChunkSize(4_096, 64, 20_000, 50, 500, average_ms=10)
    slow = size.adjust_to_chunk(600)
    assert slow.rows == 2_048
    assert slow.adjust_to_chunk(100).rows == 2_048, "the average is still high"
    for _ in range(30):
        slow = slow.adjust_to_chunk(10)
    assert slow.rows == 20_000


def simulate(ms_per_row: float, rounds: int) -> list[int]:
    size, sizes = chunk(), []
    for _ in range(rounds):
        sizes.append(size.rows)
        size = size.adjust_to_chunk(2 + size.rows * ms_per_row)
    return sizes


def test_chunk_size_settles_between_targets_without_oscillation() -> None:
    for ms_per_row in (0.005, 0.01, 0.05, 0.2, 1.0):
        tail = simulate(ms_per_row, 100)[50:]
        assert len(set(tail)) == 1, f"{ms_per_row} ms a row: {tail}"
        assert tail[0] == 64 or 2 + tail[0] * ms_per_row <= 500


@given(st.lists(st.floats(0, 1e6), max_size=100))
def test_chunk_size_stays_within_bounds(seen: list[float]) -> None:
    size = chunk()
    for ms in seen:
        size = size.adjust_to_chunk(ms)
        assert 64 <= size.rows <= 20_000


def test_chunk_size_settles_when_both_targets_are_equal() -> None:
    size, sizes = ChunkSize.start_at_minimum(min_rows=64, max_rows=20_000, good_ms=50, bad_ms=50), []
    for _ in range(60):
        sizes.append(size.rows)
        size = size.adjust_to_chunk(2 + size.rows * 0.02)
    assert len(set(sizes[30:])) == 1, sizes[30:]
    assert 25 <= 2 + sizes[-1] * 0.02 <= 50


def test_chunk_size_follows_database_slowdown_and_recovery() -> None:
    """A database that is ten times slower for a while."""
    size, sizes = chunk(), []
    for round_ in range(120):
        sizes.append(size.rows)
        size = size.adjust_to_chunk(2 + size.rows * (0.2 if 40 <= round_ < 80 else 0.02))
    quick, slow, again = sizes[39], sizes[79], sizes[-1]
    assert 2 + slow * 0.2 <= 500
    assert slow < quick
    assert again >= quick / 2
    assert sizes[60:80] == [slow] * 20, "no oscillation while it is slow"


def test_chunk_size_halves_after_wait_for_connection() -> None:
    size = ChunkSize(4_096, 64, 20_000, 50, 500, average_ms=1)
    after = size.adjust_to_chunk(1, waited_ms=3)
    assert (after.rows, after.reason) == (2_048, "pool")
    assert after.adjust_to_chunk(1).rows == 4_096, "no transaction waited: it grows again"


def test_chunk_size_is_cut_to_a_quarter_with_backoff_after_failure() -> None:
    size = ChunkSize(16_384, 64, 20_000, 50, 500, average_ms=1)
    once, thrice = size.adjust_to_chunk(1, failed=1), size.adjust_to_chunk(1, failed=3)
    assert (once.rows, once.reason) == (4_096, "errors")
    assert thrice.rows == 256
    assert size.backoff_s(0.5) == 0
    assert 0 < once.backoff_s(0.0) < once.backoff_s(1.0) < thrice.backoff_s(0.0)
    assert once.adjust_to_chunk(1).backoff_s(1.0) == 0, "the next chunk succeeded"
    assert size.shrink_after_failures(99).backoff_s(1.0) == MAX_CHUNK_BACKOFF_S


def test_chunk_size_change_is_based_on_rows_actually_written() -> None:
    size = ChunkSize(2_048, 64, 20_000, 50, 500, average_ms=600)
    assert size.adjust_to_chunk(600, rows=4_096).rows == 2_048, "that is already half of the written rows"
    assert size.adjust_to_chunk(600, rows=1_000).rows == 500


def test_chunk_size_does_not_grow_when_byte_limit_ends_chunk() -> None:
    size = ChunkSize(128, 64, 20_000, 50, 500, average_ms=1)
    assert size.adjust_to_chunk(1, rows=90, full=False).rows == 128
    assert size.adjust_to_chunk(600, rows=90, full=False).rows == 64


@given(
    st.integers(64, 20_000),
    st.floats(0, 1e5),
    st.integers(0, 30),
    st.floats(0, 1e4),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 50_000)),
)
def test_chunk_size_never_grows_after_failure_wait_or_slow_chunk(
    rows: int, ms: float, failed: int, waited_ms: float, full: bool, written: int | None
) -> None:
    size = ChunkSize(rows, 64, 20_000, 50, 500, average_ms=10)
    after = size.adjust_to_chunk(ms, rows=written, failed=failed, waited_ms=waited_ms, full=full)
    assert 64 <= after.rows <= 20_000
    if failed or waited_ms or ms > 500:
        assert after.rows <= size.rows
        assert after.reason
    else:
        assert after.rows >= size.rows
    worse = size.adjust_to_chunk(ms, rows=written, failed=failed + 1, waited_ms=waited_ms, full=full)
    assert worse.rows <= after.rows, "another failure never increases the chunk"
    assert 0 <= after.backoff_s(1.0) <= MAX_CHUNK_BACKOFF_S
