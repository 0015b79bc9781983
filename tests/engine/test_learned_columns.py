"""Tests of learned result columns and their order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from support import add_job, fates, job_of, take
from support.result_exports import columns_of
from tidemill import Done, Item, Mill, Retry
from tidemill.core.decide import Verdict
from tidemill.core.errors import InvalidInput
from tidemill.core.result_grid import COLUMN_NAME_MAX_CHARS, GRID_COLUMNS_MAX, GridColumns
from tidemill.core.status import ItemStatus
from tidemill.engine.learned_columns import LearnedColumnsCache
from tidemill.jobs.queries import get_grid_columns
from tidemill.store import workers as store
from tidemill.store.database import Connection, Database
from tidemill.testing import drain


async def test_columns_are_learned_in_order_of_result_keys(mill: Mill, db: Database) -> None:
    @mill.handler("test", concurrency=1)
    async def run(item: Item) -> Any:
        return [{"zebra": 1, "apple": 2}, None, {"apple": 3, "mango": 4}, {}][item.seq]

    job_id = await mill.submit_async("test", range(4))
    await drain(mill, db=db)
    assert await columns_of(db, job_id) == ["zebra", "apple", "mango"]
    assert await get_grid_columns(db, job_id) == GridColumns(("zebra", "apple", "mango"))


@dataclass
class Point:
    y: int
    x: int


@pytest.mark.parametrize(
    ("result", "columns"),
    [
        ([1, 2], ["result"]),
        ("text", ["result"]),
        (0, ["result"]),
        (False, ["result"]),
        ({2: "b", 1: "a"}, ["2", "1"]),
        (Point(1, 2), ["y", "x"]),
        (Done({"b": 1, "a": 2}), ["b", "a"]),
        ({}, []),
        (None, []),
    ],
    ids=str,
)
async def test_columns_are_learned_from_every_result_type(
    result: object, columns: list[str], mill: Mill, db: Database
) -> None:
    @mill.handler("test")
    async def run(item: Item) -> object:
        return result

    job_id = await mill.submit_async("test", range(3))
    await drain(mill, db=db)
    assert await columns_of(db, job_id) == columns


@pytest.mark.parametrize("takes_connection", [False, True])
async def test_columns_are_learned_from_batch_handlers(takes_connection: bool, mill: Mill, db: Database) -> None:
    async def whole(items: list[Item]) -> list[dict[str, int]]:
        return [{"b": item.seq, f"c{item.seq % 2}": 1} for item in items]

    async def within(items: list[Item], conn: Connection) -> list[dict[str, int]]:
        return await whole(items)

    mill.batch_handler("test")(within if takes_connection else whole)
    job_id = await mill.submit_async("test", range(10))
    await drain(mill, db=db)
    assert await columns_of(db, job_id) == ["b", "c0", "c1"]


async def test_sparse_results_are_not_stored_and_add_no_columns(mill: Mill, db: Database) -> None:
    @mill.batch_handler("test", sparse=True)
    async def run(items: list[Item]) -> list[dict[str, int]]:
        return [{"lost": 1} for _ in items]

    job_id = await mill.submit_async("test", [{"b": 1, "a": 2}])
    await drain(mill, db=db)
    assert await columns_of(db, job_id) == []
    assert await get_grid_columns(db, job_id) == GridColumns(("b", "a"), "input")


async def test_columns_of_retried_item_are_learned_when_it_is_done(mill: Mill, db: Database) -> None:
    @mill.handler("test", max_attempts=2)
    async def run(item: Item) -> dict[str, int]:
        if item.attempt == 1:
            raise Retry("later")
        return {"late": 1}

    job_id = await mill.submit_async("test", [1])
    await drain(mill, db=db)
    assert await columns_of(db, job_id) == ["late"]


async def test_learned_columns_stop_at_maximum_count(mill: Mill, db: Database) -> None:
    @mill.handler("test", concurrency=1)
    async def run(item: Item) -> dict[str, int]:
        return {f"{item.seq}.{n}": n for n in range(100)} | {"x" * (COLUMN_NAME_MAX_CHARS + 1): 1}

    job_id = await mill.submit_async("test", range(5))
    await drain(mill, db=db)
    columns = await columns_of(db, job_id)
    assert columns == [f"{n // 100}.{n % 100}" for n in range(GRID_COLUMNS_MAX)]
    assert (await job_of(db, job_id)).counts.done == 5


@pytest.mark.parametrize("raw", [b"no json", b'{"\\u0000": 1}', b'{"\\ud800": 1}', b"[1"])
async def test_invalid_raw_result_fails_only_its_item(raw: bytes, mill: Mill, db: Database) -> None:
    @mill.handler("test")
    async def run(item: Item) -> Any:
        return msgspec.Raw(raw) if item.seq == 1 else msgspec.Raw(b'{"good": 1}')

    job_id = await mill.submit_async("test", range(3))
    await drain(mill, db=db)
    assert await columns_of(db, job_id) == ["good"]
    assert await fates(db, job_id) == {("done", None, 1): 2, ("failed", "invalid_result", 1): 1}


@pytest.mark.parametrize("raw", [b"no json", b'{"\\u0000": 1}'])
async def test_invalid_raw_result_does_not_block_columns_of_other_results(raw: bytes, db: Database) -> None:
    job_id = await add_job(db, 2)
    columns = LearnedColumnsCache().get_for_lease(await take(db, job_id))
    columns.learn_from_verdicts(
        [Verdict(0, ItemStatus.DONE, 1, 1, raw), Verdict(1, ItemStatus.DONE, 1, 1, b'{"good":1}')]
    )
    await columns.store_new_columns(db)
    assert await columns_of(db, job_id) == ["good"]


async def test_declared_columns_come_first_and_exist_before_any_result(mill: Mill, db: Database) -> None:
    @mill.handler("test", columns=["sku", "price"])
    async def run(item: Item) -> dict[str, int]:
        return {"extra": 1, "price": 2}

    job_id = await mill.submit_async("test", [1])
    assert await columns_of(db, job_id) == ["sku", "price"]
    await drain(mill, db=db)
    assert await columns_of(db, job_id) == ["sku", "price", "extra"]


async def test_submission_without_handler_code_uses_declared_columns_of_kind(mill: Mill, db: Database) -> None:
    mill.handler("test", columns=["b", "a"])(print)
    await db.run(store.register_kinds, mill.registry.create_all())
    assert await columns_of(db, await add_job(db, 1)) == ["b", "a"]
    assert await columns_of(db, await add_job(db, 1, kind="other")) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("sku", "a list of names"),
        ([], "a list of names"),
        ([1], "a list of names"),
        (["a", "a"], "unique names"),
        (["a" * (COLUMN_NAME_MAX_CHARS + 1)], "at most 200 characters"),
        (["\x00"], "no NUL"),
        ([str(n) for n in range(GRID_COLUMNS_MAX + 1)], "at most 256"),
    ],
    ids=["text", "none", "numbers", "twice", "long", "nul", "many"],
)
def test_invalid_declared_columns_are_rejected(columns: Sequence[str], message: str, mill: Mill) -> None:
    with pytest.raises(InvalidInput, match=message):
        mill.handler("test", columns=columns)(print)
