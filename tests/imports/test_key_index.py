"""The key index, compared with a plain dict."""

import os

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.imports import key_index
from tidemill.imports.key_index import KeyIndex

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
def test_key_index_finds_same_duplicates_as_dict(
    chunks: list[list[str | None]], latest: bool, recent: int, bits: int, runs_max: int, part: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "RECENT_KEYS_MAX", recent)
        patch.setattr(key_index, "RUNS_PER_LEVEL_MAX", runs_max)
        patch.setattr(key_index, "MERGE_CHUNK_KEYS", part)
        patch.setattr(key_index, "BLOOM_BITS_INITIAL", bits)
        patch.setattr(key_index, "BLOOM_BITS_MAX", max(bits, 256))
        known: dict[str, int] = {}
        seen, lo = KeyIndex(keep_latest=latest), 0
        for chunk in chunks:
            wanted = []
            for row, key in enumerate(chunk, lo):
                if key is None:
                    continue
                if key in known:
                    wanted.append((known[key], row) if latest else (row, known[key]))
                if latest or key not in known:
                    known[key] = row
            assert seen.add_keys_and_find_repeats(lo, chunk) == wanted
            lo += len(chunk)
        assert seen._bitmap.bits <= max(bits, 256)
        seen.close()


def lengths_of(seen: KeyIndex) -> list[int]:
    """Of its runs, newest first."""
    return [len(found) for level in seen._runs._levels for found, _ in reversed(level.get_mapped_runs())]


def test_key_index_of_many_keys_uses_few_files_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "RECENT_KEYS_MAX", 100)
    seen = KeyIndex(keep_latest=False)
    seen.add_keys_and_find_repeats(0, list(map(str, range(100))))
    before = psutil.Process().num_fds()
    for run in range(1, 300):
        seen.add_keys_and_find_repeats(run * 100, list(map(str, range(run * 100, run * 100 + 100))))
    levels = 3  # 300 is 1 x 256 + 2 x 16 + 12
    assert psutil.Process().num_fds() <= before + 2 * (levels - 1)
    assert lengths_of(seen) == [100] * 12 + [1_600] * 2 + [25_600]
    assert seen.add_keys_and_find_repeats(30_000, ["7", "29999", "new"]) == [(30_000, 7), (30_001, 29_999)]
    seen.close()
    assert psutil.Process().num_fds() < before


def test_key_index_completes_short_disk_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(key_index, "RECENT_KEYS_MAX", 10)
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: write(file, data[:13], place))
    seen = KeyIndex(keep_latest=False)
    assert seen.add_keys_and_find_repeats(0, range(100)) == []
    assert seen.add_keys_and_find_repeats(100, range(100)) == [(100 + row, row) for row in range(100)]
    seen.close()


def test_key_index_merge_keeps_latest_row_of_shared_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "RECENT_KEYS_MAX", 100)
    monkeypatch.setattr(key_index, "MERGE_CHUNK_KEYS", 30)
    seen, names = KeyIndex(keep_latest=True), list(map(str, range(100)))
    for run in range(40):
        seen.add_keys_and_find_repeats(run * 100, names)
    assert lengths_of(seen) == [100] * 10
    assert seen.add_keys_and_find_repeats(4_000, ["5"]) == [(3_905, 4_000)]
    seen.close()


@pytest.mark.parametrize("latest", [False, True])
def test_key_index_merges_small_chunks_of_repeated_keys(latest: bool) -> None:
    seen = KeyIndex(keep_latest=latest)
    for chunk in range(200):
        repeats = seen.add_keys_and_find_repeats(chunk * 10, list(map(str, range(10))))
        assert len(repeats) == (10 if chunk else 0)
        assert len(seen._recent) <= key_index.RECENT_CHUNKS_MAX
    assert repeats[0] == ((1_980, 1_990) if latest else (1_990, 0))
    seen.close()
