"""Datasets whose rows are produced by a function of the mill."""

import threading
from collections.abc import AsyncIterator, Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from distributions.scenes import Scene, statuses
from tidemill import NotFound
from tidemill.core.errors import InvalidSettings
from tidemill.core.file_format import FileFormat
from tidemill.distributions.use_cases import load_datasets

FIELDS: dict[str, str | dict[str, Any]] = {"to": "text", "on": {"type": "date", "required": False}}
TO_ADA = {"to": "ADA", "on": "2024-02-02"}


async def made_by(scene: Scene, function: Any, *inputs: Any, **more: Any) -> list[dict[str, Any]]:
    wanted = {"format": more.pop("file_format", None), "policy": more.pop("policy", None)}
    scene.mill.dataset("letters", fields=FIELDS, read=["user"], **more)(function)
    return await scene.run(*(inputs or [TO_ADA]), dataset="letters", **wanted)


async def test_generator_of_dicts_writes_header_and_rows(scene: Scene) -> None:
    def letters(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"to": given["to"], "on": given["on"], "text": 'a "b", c', "cents": Decimal("1.50"), "paid": True}
        yield {"to": given["to"], "text": "", "cents": None}

    (made,) = await made_by(scene, letters)
    assert scene.read(made["path"]) == (b'to,on,text,cents,paid\nADA,2024-02-02,"a ""b"", c",1.50,true\nADA,,"",,\n')
    assert made["rows"] == 2


async def test_async_generator_of_tuples_uses_declared_columns(scene: Scene) -> None:
    async def letters(given: dict[str, Any]) -> AsyncIterator[tuple[Any, ...]]:
        assert given == {"to": "ADA", "on": date(2024, 2, 2)}
        for n in range(2):
            yield n, {"n": [n]}

    (made,) = await made_by(scene, letters, columns=["n", "more"])
    assert scene.read(made["path"]) == b'n,more\n0,"{""n"":[0]}"\n1,"{""n"":[1]}"\n'


@pytest.mark.parametrize("is_async", [False, True])
async def test_function_returning_list_writes_rows(scene: Scene, is_async: bool) -> None:
    def letters(given: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"to": given["to"]}]

    async def letters_async(given: dict[str, Any]) -> list[dict[str, Any]]:
        return letters(given)

    (made,) = await made_by(scene, letters_async if is_async else letters, file_format=FileFormat.NDJSON)
    assert scene.read(made["path"]) == b'{"to":"ADA"}\n'


async def test_function_without_rows_writes_declared_header_only(scene: Scene) -> None:
    (made,) = await made_by(scene, lambda _: [], columns=["a", "b"])
    assert scene.read(made["path"]) == b"a,b\n"


async def test_function_without_rows_or_columns_writes_empty_file(scene: Scene) -> None:
    (made,) = await made_by(scene, lambda _: [])
    assert (scene.read(made["path"]), made["rows"]) == (b"", 0)


async def test_large_function_output_is_written_completely(scene: Scene) -> None:
    async def letters(given: dict[str, Any]) -> AsyncIterator[tuple[str]]:
        for _ in range(500):
            yield ("x" * 999,)

    (made,) = await made_by(scene, letters, columns=["x"])
    assert made["size"] == 2 + 500 * 1000
    await scene.assert_whole()


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"b": 1}, 'Row 2 from the dataset function has an unexpected column "b"'),
        ((1, 2), "has 2 values; expected 1"),
        ("text", "is of type str; expected a dict or a tuple"),
    ],
)
async def test_inconsistent_rows_fail_input_and_leave_no_file(scene: Scene, second: Any, reason: str) -> None:
    (failed,) = await made_by(scene, lambda _: [{"a": 1}, second])
    assert failed["status"] == "failed"
    assert reason in failed["error"]["reason"]
    assert scene.stored() == []
    assert scene.leftovers() == []


@pytest.mark.parametrize("rows", [[{}], [{}, {"a": 1}]])
async def test_row_without_columns_fails_input_and_leaves_no_file(scene: Scene, rows: list[dict[str, int]]) -> None:
    (failed,) = await made_by(scene, lambda _: rows)
    assert (failed["status"], failed["error"]["code"]) == ("failed", "invalid_rows")
    assert "Row 1 from the dataset function has no columns" in failed["error"]["reason"]
    assert scene.stored() == []


async def test_function_exception_sets_outcome_of_its_input(scene: Scene) -> None:
    def letters(given: dict[str, Any]) -> list[dict[str, Any]]:
        if given["to"] == "NOBODY":
            raise NotFound("no such person")
        if given["to"] == "BAD":
            raise ValueError("out of ink")
        return [given]

    inputs = [{"to": name} for name in ("ADA", "NOBODY", "BAD")]
    made = await made_by(scene, letters, *inputs, policy={"mode": "continue"})
    assert statuses(made) == ["done", "not_found", "failed"]
    assert "out of ink" in made[2]["error"]["reason"]


async def test_blocking_function_does_not_block_other_inputs(scene: Scene) -> None:
    def letters(given: dict[str, Any]) -> list[dict[str, Any]]:
        meeting.wait(30)  # times out unless another input runs at the same time
        return [given]

    meeting = threading.Barrier(2)
    made = await made_by(scene, letters, *({"to": f"P{n}"} for n in range(16)))
    assert statuses(made) == ["done"] * 16


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"fields": {"a": "text"}}, "datasets.x.query: Field required"),
        ({"query": "SELECT 1"}, "datasets.x.fields: Field required"),
        ({"query": "SELECT %(b)s", "fields": {"bb": "text"}}, 'Unknown field "b"; did you mean "bb"?'),
        ({"query": "SELECT %s", "fields": {"a": "text"}}, "%s is not a parameter"),
        ({"query": "SELECT 5 % 2", "fields": {"a": "text"}}, "%% for a percent sign"),
        ({"query": "SELECT 1", "fields": {"a": "texts"}}, "datasets.x.fields.a.type: must be one of"),
        ({"query": "SELECT 1", "fields": {"A": "text"}}, "datasets.x.fields.A"),
        ({"query": "SELECT 1", "fields": {"status": "text"}}, "The name is reserved"),
        ({"query": "SELECT 1", "fields": {"a": "text"}, "date_field": "a"}, '"a" is not a field of type date'),
        ({"query": "SELECT 1", "fields": {"a": "text"}, "formt": "csv"}, 'Unknown key; did you mean "format"?'),
        ({"query": "SELECT 1", "fields": {"a": "text"}, "format": "pdf"}, 'not "pdf"'),
        (
            {"query": "SELECT 1", "fields": {"a": "text"}, "format": "xlsx", "compression": "gzip"},
            "has built-in compression",
        ),
        ({"query": "SELECT 1", "fields": {"a": "text"}, "columns": ["a"]}, "A query already names its columns"),
        (
            {"query": "SELECT 1", "fields": {"a": "text"}, "read": ["king"]},
            'must be one of "user", "admin", not "king"',
        ),
    ],
)
def test_invalid_dataset_declaration_is_rejected_at_startup(scene: Scene, words: dict[str, Any], problem: str) -> None:
    scene.mill.dataset("x", **words)
    with pytest.raises(InvalidSettings) as refused:
        load_datasets(scene.runtime)
    assert problem in str(refused.value)
