"""Write the rows of the items benchmark in all required formats, before the measurement starts."""

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from tidemill.core.decide import Verdict
from tidemill.core.status import ItemStatus
from tidemill.store.copy_rows import encode_item_row, encode_outcome_rows
from tidemill.store.jsonb import encode_json

ROWS_PER_BLOCK = 1_000
ROWS_READ_CHUNK_BYTES = 256 * 1024
BARE_JOB_ID = UUID("0199a000-0000-7000-8000-000000000000")
BARE_TIMESTAMP = b"2025-01-01 00:00:00+00"


@cache
def make_base_inputs() -> list[dict[str, Any]]:
    """Return a thousand inputs of about 100 bytes each."""
    return [
        {"id": i, "name": f"Customer {i:06}", "email": f"customer.{i:06}@example.org", "amount": i * 7 % 1000 / 100}
        for i in range(ROWS_PER_BLOCK)
    ]


def repeat_inputs(n: int) -> Iterator[dict[str, Any]]:
    return itertools.islice(itertools.cycle(make_base_inputs()), n)


def write_ndjson_file(folder: Path, n: int) -> Path:
    """Write ``n`` rows as an NDJSON file; return its path."""
    path, block = folder / f"load-{n}.ndjson", b"".join(encode_json(value) + b"\n" for value in make_base_inputs())
    lines = block.splitlines(keepends=True)
    with path.open("wb") as file:
        for _ in range(n // ROWS_PER_BLOCK):
            file.write(block)
        file.writelines(lines[: n % ROWS_PER_BLOCK])
    return path


class SampleRows:
    """``n`` rows as an NDJSON file for ingest, and their items and outcomes as text for a bare COPY."""

    def __init__(self, folder: Path, n: int) -> None:
        self.n = n
        self.ndjson = folder / f"rows-{n}.ndjson"
        self._items = folder / f"rows-{n}.items"
        self._outcomes = folder / f"rows-{n}.outcomes"
        self._blocks: list[tuple[int, int, int]] = []
        self._write_files()

    def read_item_chunks(self) -> Iterator[bytes]:
        with self._items.open("rb") as file:
            while piece := file.read(ROWS_READ_CHUNK_BYTES):
                yield piece

    def read_outcome_blocks(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (lo, hi, text) for each thousand rows."""
        with self._outcomes.open("rb") as file:
            for lo, hi, size in self._blocks:
                yield lo, hi, file.read(size)

    def _write_files(self) -> None:
        values = [encode_json(value) for value in make_base_inputs()]
        head, tail = f"{BARE_JOB_ID}\t".encode(), b"\t" + BARE_TIMESTAMP + b"\n"
        with self.ndjson.open("wb") as ndjson, self._items.open("wb") as items, self._outcomes.open("wb") as outcomes:
            for lo in range(0, self.n, ROWS_PER_BLOCK):
                hi = min(lo + ROWS_PER_BLOCK, self.n)
                ndjson.writelines(value + b"\n" for value in values[: hi - lo])
                items.writelines(encode_item_row(head, seq, values[seq - lo], tail) for seq in range(lo, hi))
                verdicts = [Verdict(seq, ItemStatus.DONE, 1, 0) for seq in range(lo, hi)]
                details = [None] * len(verdicts)
                size = outcomes.write(
                    encode_outcome_rows(str(BARE_JOB_ID).encode(), 0, BARE_TIMESTAMP, verdicts, details)
                )
                self._blocks.append((lo, hi, size))
