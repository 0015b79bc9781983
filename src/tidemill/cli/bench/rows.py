"""The rows of a benchmark, in every form they are needed, made before a clock runs."""

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from tidemill.domain.decide import Verdict
from tidemill.domain.status import ItemStatus
from tidemill.store.json import encode
from tidemill.store.rows import item_line, outcome_lines

BLOCK = 1_000
PIECE = 256 * 1024
JOB = UUID("0199a000-0000-7000-8000-000000000000")
AT = b"2025-01-01 00:00:00+00"


@cache
def base() -> list[dict[str, Any]]:
    """A thousand inputs of about 100 bytes, repeated as often as need be."""
    return [
        {"id": i, "name": f"Customer {i:06}", "email": f"customer.{i:06}@example.org", "amount": i * 7 % 1000 / 100}
        for i in range(BLOCK)
    ]


def inputs(n: int) -> Iterator[dict[str, Any]]:
    return itertools.islice(itertools.cycle(base()), n)


class Rows:
    """``n`` rows as a file for ingest, as the text of a bare COPY, and their outcomes as the text of another."""

    def __init__(self, folder: Path, n: int) -> None:
        self.n = n
        self.ndjson = folder / f"rows-{n}.ndjson"
        self._items = folder / f"rows-{n}.items"
        self._outcomes = folder / f"rows-{n}.outcomes"
        self._blocks: list[tuple[int, int, int]] = []
        self._write()

    def item_pieces(self) -> Iterator[bytes]:
        with self._items.open("rb") as file:
            while piece := file.read(PIECE):
                yield piece

    def outcome_blocks(self) -> Iterator[tuple[int, int, bytes]]:
        """(lo, hi, text) per thousand rows."""
        with self._outcomes.open("rb") as file:
            for lo, hi, size in self._blocks:
                yield lo, hi, file.read(size)

    def _write(self) -> None:
        values = [encode(value) for value in base()]
        head, tail = f"{JOB}\t".encode(), b"\t" + AT + b"\n"
        with self.ndjson.open("wb") as ndjson, self._items.open("wb") as items, self._outcomes.open("wb") as outcomes:
            for lo in range(0, self.n, BLOCK):
                hi = min(lo + BLOCK, self.n)
                ndjson.writelines(value + b"\n" for value in values[: hi - lo])
                items.writelines(item_line(head, seq, values[seq - lo], tail) for seq in range(lo, hi))
                verdicts = [Verdict(seq, ItemStatus.DONE, 1, 0) for seq in range(lo, hi)]
                size = outcomes.write(outcome_lines(str(JOB).encode(), 0, AT, verdicts))
                self._blocks.append((lo, hi, size))
