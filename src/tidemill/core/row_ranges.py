"""Rows selected by number: single rows and inclusive ranges."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tidemill.core.list_pages import BIGINT_SAFE_MAX

SeqRange = tuple[int, int]


def merge_ranges(ranges: Iterable[Sequence[int]]) -> tuple[SeqRange, ...]:
    """Return the same rows as sorted ranges that neither overlap nor touch."""
    merged: list[SeqRange] = []
    for first, last in sorted((int(first), int(last)) for first, last in ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def is_in_ranges(seq: int, ranges: Sequence[SeqRange]) -> bool:
    """Return whether a row is in one of the ranges, which must come from ``merge_ranges``."""
    at = bisect_right(ranges, (seq, BIGINT_SAFE_MAX)) - 1
    return at >= 0 and seq <= ranges[at][1]


def select_seqs_between(lo: int, hi: int, seqs: Iterable[int], ranges: Iterable[SeqRange]) -> list[int]:
    """Return the selected seqs from ``lo`` up to but excluding ``hi``, in order."""
    selected = {seq for seq in seqs if lo <= seq < hi}
    for first, last in ranges:
        selected.update(range(max(lo, first), min(hi, last + 1)))
    return sorted(selected)


@dataclass(frozen=True, slots=True)
class RowSelection:
    """A selection of a job's rows by error code, key or number, without ``excluded_seqs``. It has no statuses."""

    codes: frozenset[str] | None = None
    key: str | None = None
    seqs: frozenset[int] | None = None
    excluded_seqs: frozenset[int] = frozenset()
    ranges: tuple[SeqRange, ...] = ()  # in addition to the seqs; as ``merge_ranges`` returns them

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        codes, seqs = value.get("codes"), value.get("seqs")
        return cls(
            None if codes is None else frozenset(codes),
            value.get("key"),
            None if seqs is None else frozenset(seqs),
            frozenset(value.get("but", ())),
            merge_ranges(value.get("ranges", ())),
        )

    def to_json(self) -> Mapping[str, object]:
        """Return the selection as JSON; empty if it selects all rows."""
        codes = {} if self.codes is None else {"codes": sorted(self.codes)}
        key = {} if self.key is None else {"key": self.key}
        seqs = {} if self.seqs is None else {"seqs": sorted(self.seqs)}
        ranges = {"ranges": [list(one) for one in self.ranges]} if self.ranges else {}
        return codes | key | seqs | ranges | ({"but": sorted(self.excluded_seqs)} if self.excluded_seqs else {})

    def includes(self, seq: int) -> bool:
        return seq not in self.excluded_seqs and (
            self.seqs is None or seq in self.seqs or is_in_ranges(seq, self.ranges)
        )
