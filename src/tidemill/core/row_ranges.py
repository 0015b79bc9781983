"""Rows that are chosen by their numbers: single ones, and ranges of which both ends are part."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tidemill.core.list_pages import BIGINT_SAFE_MAX

SeqRange = tuple[int, int]


def merge_ranges(ranges: Iterable[Sequence[int]]) -> tuple[SeqRange, ...]:
    """The same rows in ranges that are in order and apart from one another."""
    found: list[SeqRange] = []
    for first, last in sorted((int(first), int(last)) for first, last in ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def is_in_ranges(seq: int, ranges: Sequence[SeqRange]) -> bool:
    """``ranges`` as ``merged`` has them."""
    at = bisect_right(ranges, (seq, BIGINT_SAFE_MAX)) - 1
    return at >= 0 and seq <= ranges[at][1]


def select_seqs_between(lo: int, hi: int, seqs: Iterable[int], ranges: Iterable[SeqRange]) -> list[int]:
    """Those from ``lo`` to before ``hi``, in order."""
    found = {seq for seq in seqs if lo <= seq < hi}
    for first, last in ranges:
        found.update(range(max(lo, first), min(hi, last + 1)))
    return sorted(found)


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which of a job's rows, beside their statuses: by cause, by key, or those that are named; but some."""

    codes: frozenset[str] | None = None
    key: str | None = None
    seqs: frozenset[int] | None = None
    excluded_seqs: frozenset[int] = frozenset()
    ranges: tuple[SeqRange, ...] = ()  # beside the seqs; in order, and apart from one another

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
        """The same as JSON; empty when all rows are meant."""
        codes = {} if self.codes is None else {"codes": sorted(self.codes)}
        key = {} if self.key is None else {"key": self.key}
        seqs = {} if self.seqs is None else {"seqs": sorted(self.seqs)}
        ranges = {"ranges": [list(one) for one in self.ranges]} if self.ranges else {}
        return codes | key | seqs | ranges | ({"but": sorted(self.excluded_seqs)} if self.excluded_seqs else {})

    def includes(self, seq: int) -> bool:
        return seq not in self.excluded_seqs and (
            self.seqs is None or seq in self.seqs or is_in_ranges(seq, self.ranges)
        )
