"""Rows that are chosen by their numbers: single ones, and ranges of which both ends are part."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tidemill.domain.page import MAX_NUMBER

Range = tuple[int, int]


def merged(ranges: Iterable[Sequence[int]]) -> tuple[Range, ...]:
    """The same rows in ranges that are in order and apart from one another."""
    found: list[Range] = []
    for first, last in sorted((int(first), int(last)) for first, last in ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def is_in(seq: int, ranges: Sequence[Range]) -> bool:
    """``ranges`` as ``merged`` has them."""
    at = bisect_right(ranges, (seq, MAX_NUMBER)) - 1
    return at >= 0 and seq <= ranges[at][1]


def within(lo: int, hi: int, seqs: Iterable[int], ranges: Iterable[Range]) -> list[int]:
    """Those from ``lo`` to before ``hi``, in order."""
    found = {seq for seq in seqs if lo <= seq < hi}
    for first, last in ranges:
        found.update(range(max(lo, first), min(hi, last + 1)))
    return sorted(found)
