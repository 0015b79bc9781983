"""The mill that the workers of a run load. The input of an item sets its outcome, and handlers record their effects."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from tidemill.app.mill import Mill
from tidemill.config import Settings
from tidemill.core.job import Item
from tidemill.core.outcome import Done, Fail, NotFound, Outcome, Retry, Skip
from tidemill.store.database import Connection
from tidemill.torture.processes import execute_statement

MILL_REFERENCE = "tidemill.torture.workload:mill"
ITEM_KIND, DENSE_KIND, SPARSE_KIND = "torture.item", "torture.dense", "torture.sparse"
OWN_KINDS = (ITEM_KIND, DENSE_KIND, SPARSE_KIND)
DATASET = "torture"
SCHEMA = "tidemill_torture"
LEDGER_VARIABLE = "TORTURE_LEDGER"  # the file to which handlers append a line for each effect
FAILURE_CODE = "torture"
FLUSH_PAUSE_S = 0.03  # so that faults hit open transactions
FILE_ROWS = 20


def build_input(number: int, fate: str, milliseconds: int) -> dict[str, Any]:
    return {"n": number, "fate": fate, "ms": milliseconds}


def decide_outcome(item: Item) -> Outcome:
    match item.input["fate"]:
        case "retry" if item.attempt == 1:
            return Retry("The first attempt fails", after=0.1)
        case "fail":
            return Fail("The input must be fixed", code=FAILURE_CODE, retryable=True)
        case "skip":
            return Skip()
        case "missing":
            return NotFound(again=False)
    return Done({"n": item.input["n"]})


class EffectFile:
    """A file with a line for each effect. A line that was written survives the death of its process."""

    def __init__(self) -> None:
        self._file: int | None = None

    def append(self, items: Sequence[Item]) -> None:
        if self._file is None:
            self._file = os.open(os.environ[LEDGER_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, b"".join(b"%s %d %d\n" % (str(i.job_id).encode(), i.seq, i.attempt) for i in items))


effect_file = EffectFile()


async def run_item(item: Item) -> Any:
    await asyncio.sleep(item.input["ms"] / 1000)
    outcome = decide_outcome(item)
    if type(outcome) is not Done:
        raise outcome
    effect_file.append([item])
    return outcome.result


async def run_batch(items: list[Item], conn: Connection) -> list[Outcome]:
    """Write an effect for each done item, in the transaction that writes its outcome."""
    outcomes = [decide_outcome(item) for item in items]
    done = [item for item, outcome in zip(items, outcomes, strict=True) if type(outcome) is Done]
    effects = {"job_id": items[0].job_id, "seqs": [item.seq for item in done], "pid": os.getpid()}
    await execute_statement(conn, "add_effects", effects)
    effect_file.append(done)
    await asyncio.sleep(FLUSH_PAUSE_S)
    return outcomes


def build_file_rows(number: int) -> list[dict[str, int]]:
    """Return the rows of one distributed file."""
    return [{"n": number, "line": line} for line in range(FILE_ROWS)]


async def produce_file_rows(given: dict[str, Any]) -> list[dict[str, int]]:
    await asyncio.sleep(FLUSH_PAUSE_S)
    return build_file_rows(given["n"])


def make_mill(settings: Settings | None = None) -> Mill:
    mill = Mill(settings)
    mill.handler(ITEM_KIND, concurrency=20, timeout=30, max_attempts=3, backoff=0.2, backoff_cap=1.0)(run_item)
    mill.batch_handler(DENSE_KIND, timeout=30, max_attempts=3, backoff=0.2, backoff_cap=1.0)(run_batch)
    mill.batch_handler(SPARSE_KIND, sparse=True, timeout=30, max_attempts=3, backoff=0.2, backoff_cap=1.0)(run_batch)
    mill.dataset(DATASET, fields={"run": "text", "n": "integer"}, read=["user"])(produce_file_rows)
    return mill


def read_ledger_lines(lines: Iterator[bytes]) -> Iterator[tuple[UUID, int]]:
    """Return the job and the item of each complete line."""
    for line in lines:
        job_id, seq, _attempt = line.split()
        yield UUID(job_id.decode()), int(seq)


mill = make_mill()
