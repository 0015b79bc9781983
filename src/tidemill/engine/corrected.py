"""A source whose records were corrected before it was read: what it gives is what people made of it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.domain.block import Block
from tidemill.domain.ports import Source
from tidemill.store import fix
from tidemill.store.database import Database
from tidemill.store.ingest import IngestLease

Look = Callable[[int, int], dict[int, bytes]]  # from, to before: what stands for these rows


class Corrected:
    """Reads on from a row. The corrections of a block are looked up with it: there may be any number of them."""

    def __init__(self, source: Source, row: int, look: Look) -> None:
        self._source = source
        self._row = row
        self._look = look

    @property
    def columns(self) -> list[str] | None:
        return self._source.columns

    @property
    def first_line(self) -> int:
        return self._source.first_line

    @property
    def layout(self) -> Mapping[str, Any]:
        return self._source.layout

    def read(self, rows: int, size: int) -> Block:
        block = self._source.read(rows, size)
        lo, self._row = self._row, self._row + len(block.inputs)
        found = self._look(lo, self._row) if block.inputs else {}
        if not found:
            return block
        inputs = [found.get(seq, old) for seq, old in enumerate(block.inputs, lo)]
        defects = {index: defect for index, defect in block.defects.items() if lo + index not in found}
        return replace(block, inputs=inputs, defects=defects)

    def close(self) -> None:
        self._source.close()


def corrected(db: Database, lease: IngestLease, source: Source) -> Source:
    """The source of a job that has corrections already. It is read in a thread; the loop asks the database for it."""
    loop = asyncio.get_running_loop()

    def look(lo: int, hi: int) -> dict[int, Any]:
        return asyncio.run_coroutine_threadsafe(db.run(fix.newest, lease.job_id, lo, hi), loop).result()

    return Corrected(source, lease.next_seq, look)
