"""Which row had a key first, against a plain dict."""

import os

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.handlers.importing import keys, runs
from tidemill.handlers.importing.keys import Keys

CHUNKS = st.lists(st.lists(st.none() | st.integers(0, 40).map(str), max_size=15), max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    chunks=CHUNKS,
    latest=st.booleans(),
    recent=st.integers(1, 20),
    bits=st.sampled_from([8, 64, 1 << 23]),
    runs_max=st.integers(2, 4),
    part=st.integers(1, 20),
)
def test_keys_see_what_a_dict_sees(
    chunks: list[list[str | None]], latest: bool, recent: int, bits: int, runs_max: int, part: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "RECENT_MAX", recent)
        patch.setattr(runs, "RUNS_MAX", runs_max)
        patch.setattr(runs, "PART", part)
        patch.setattr(keys, "BITS_FIRST", bits)
        patch.setattr(keys, "BITS_MAX", max(bits, 256))
        known: dict[str, int] = {}
        seen, lo = Keys(latest=latest), 0
        for chunk in chunks:
            wanted = []
            for row, key in enumerate(chunk, lo):
                if key is None:
                    continue
                if key in known:
                    wanted.append((known[key], row) if latest else (row, known[key]))
                if latest or key not in known:
                    known[key] = row
            assert seen.see(lo, chunk) == wanted
            lo += len(chunk)
        assert seen._bitmap.bits <= max(bits, 256)
        seen.close()


def lengths_of(seen: Keys) -> list[int]:
    """Of its runs, newest first."""
    return [len(found) for level in seen._runs._levels for found, _ in reversed(level.runs())]


def test_a_file_of_any_length_takes_few_descriptors_and_has_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "RECENT_MAX", 100)
    seen = Keys(latest=False)
    seen.see(0, list(map(str, range(100))))
    before = psutil.Process().num_fds()
    for run in range(1, 300):
        seen.see(run * 100, list(map(str, range(run * 100, run * 100 + 100))))
    levels = 3  # 300 is 1 x 256 + 2 x 16 + 12
    assert psutil.Process().num_fds() <= before + 2 * (levels - 1)
    assert lengths_of(seen) == [100] * 12 + [1_600] * 2 + [25_600]
    assert seen.see(30_000, ["7", "29999", "new"]) == [(30_000, 7), (30_001, 29_999)]
    seen.close()
    assert psutil.Process().num_fds() < before


def test_a_disk_that_takes_little_at_a_time_has_everything_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(keys, "RECENT_MAX", 10)
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: write(file, data[:13], place))
    seen = Keys(latest=False)
    assert seen.see(0, range(100)) == []
    assert seen.see(100, range(100)) == [(100 + row, row) for row in range(100)]
    seen.close()


def test_of_runs_that_share_keys_the_newest_rows_are_kept_when_they_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "RECENT_MAX", 100)
    monkeypatch.setattr(runs, "PART", 30)
    seen, names = Keys(latest=True), list(map(str, range(100)))
    for run in range(40):
        seen.see(run * 100, names)
    assert lengths_of(seen) == [100] * 10
    assert seen.see(4_000, ["5"]) == [(3_905, 4_000)]
    seen.close()


@pytest.mark.parametrize("latest", [False, True])
def test_many_small_chunks_of_few_keys_make_few_runs(latest: bool) -> None:
    seen = Keys(latest=latest)
    for chunk in range(200):
        repeats = seen.see(chunk * 10, list(map(str, range(10))))
        assert len(repeats) == (10 if chunk else 0)
        assert len(seen._recent) <= keys.CHUNKS_MAX
    assert repeats[0] == ((1_980, 1_990) if latest else (1_990, 0))
    seen.close()
