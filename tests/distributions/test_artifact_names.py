"""File names are built from the input values where possible, and are unique per input."""

import re

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from distributions.scenes import Scene, given, statuses
from tidemill.core.blob_location import is_blob_name
from tidemill.distributions.dataset import DistributionInput, InputField, InvalidDistributionInputs
from tidemill.distributions.distribution_request import build_file_name_of_input

FIELDS = (InputField("index_key"), InputField("effective_date", "yyyymmdd"), InputField("asofindicator"))
HOSTILE = [
    *(
        "../../etc/passwd",
        "..",
        ".",
        "/",
        "a/b",
        "a\\b",
        "A\x01B",
        "A\nB",
        ".hidden",
        "-rf",
        "CON",
        "A:B",
        "~",
        "%2e%2e",
    ),
    *(
        "A_B",
        "A__B",
        "ä",
        "日本",
        "😀",
        " ",
        "A B",
        "X" * 1000,
        "x.tmp",
        "\u202egpj",
        "abc",
        "ABC",
        "Abc",
        "A.B",
        "A-B",
    ),
]


def name(key: str, kind: str = "CLS") -> str:
    return build_file_name_of_input(DistributionInput.parse(FIELDS, given(key, 20240202, kind)), ".csv")


def test_file_name_is_built_from_plain_input_values() -> None:
    assert name("ABC") == "ABC_20240202_CLS.csv"
    assert name("A.B-C") == "A.B-C_20240202_CLS.csv"


@pytest.mark.parametrize("key", HOSTILE)
def test_hostile_key_gets_safe_file_name(key: str) -> None:
    found = name(key)
    assert is_blob_name(f"exports/2026/01/10/J20260110_000777/{found}")
    assert "/" not in found
    assert len(found) <= 140
    assert key in ("ABC", "A.B", "A-B", "CON") or re.search(r"-[0-9a-f]{10}\.csv$", found)


def test_hostile_keys_get_file_names_unique_ignoring_case() -> None:
    assert len({name(key).lower() for key in HOSTILE}) == len(HOSTILE)


def test_file_name_separates_input_values_unambiguously() -> None:
    assert name("A", "B_C") != name("A_20240202_B", "C")
    assert len({name("A", "B_C"), name("A_20240202_B", "C"), name("A", "B-C"), name("A", "B.C")}) == 4


def test_value_ending_like_digest_cannot_forge_another_file_name() -> None:
    hashed = name("abc")
    stem, digest = hashed.removesuffix(".csv").rsplit("-", 1)
    assert stem == "abc_20240202_CLS"
    assert name("ABC", f"CLS-{digest.upper()}").lower() != hashed.lower()


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=40)


@for_all(texts, texts, texts, texts)
def test_different_inputs_get_different_file_names(key: str, kind: str, other: str, other_kind: str) -> None:
    same = (key, kind) == (other, other_kind)
    assert (name(key, kind).lower() == name(other, other_kind).lower()) == same


async def test_inputs_with_hostile_keys_produce_one_file_each(scene: Scene) -> None:
    made = await scene.run(*map(given, HOSTILE))
    assert statuses(made) == ["done"] * len(HOSTILE)
    assert len({one["path"] for one in made}) == len(HOSTILE) == len(scene.stored())
    assert [one["rows"] for one in made if one["input"]["index_key"] in ("ABC", "abc", "Abc")] == [3, 3, 0]
    await scene.assert_whole()


@pytest.mark.parametrize(
    ("wrong", "pointer", "reason"),
    [
        ([], ("inputs",), "at least one input"),
        ([given(), given("DEF"), given("ABC", "2024-02-02")], ("inputs", 2), "duplicates input 1"),
        ([given("ABC", 20240230)], ("inputs", 0, "effective_date"), "the day 20240230 does not exist"),
        ([given("ABC", 20241)], ("inputs", 0, "effective_date"), "must be a date"),
        ([given("ABC", "2024-2-2")], ("inputs", 0, "effective_date"), "must be a date"),
        ([given("ABC", True)], ("inputs", 0, "effective_date"), "must be a date"),
        ([given(), given("ABC") | {"indexkey": 1}], ("inputs", 1, "indexkey"), 'did you mean "index_key"'),
        ([given() | {"indexKey": "X"}], ("inputs", 0, "indexKey"), 'already has "index_key" in another spelling'),
        ([{"index_key": "ABC", "effective_date": 20240202}], ("inputs", 0, "asofindicator"), "is required"),
        ([given("")], ("inputs", 0, "index_key"), "1 to 1000"),
        ([given("A\x00")], ("inputs", 0, "index_key"), "NUL"),
        ([given("\ud800")], ("inputs", 0, "index_key"), "lone surrogate"),
        ([given("X" * 1001)], ("inputs", 0, "index_key"), "1 to 1000"),
        ([given() | {"\ud800": 1}], ("inputs", 0, "?"), "unknown field"),
        ([given() | {"x" * 300: 1}], ("inputs", 0, "x" * 200), "unknown field"),
        ([given(7)], ("inputs", 0, "index_key"), "must be a string"),  # type: ignore[arg-type]
        (["ABC"], ("inputs", 0), "must be an object"),
    ],
)
async def test_invalid_inputs_are_rejected_and_no_job_is_created(
    scene: Scene, wrong: list[object], pointer: tuple[object, ...], reason: str
) -> None:
    with pytest.raises(InvalidDistributionInputs) as refused:
        await scene.submit_these(wrong)
    assert [(where, reason in said) for where, said in refused.value.faults] == [(pointer, True)]
    assert await scene.job_count() == 0


async def test_unknown_and_forbidden_datasets_give_same_error(scene: Scene) -> None:
    scene.mill.dataset("secret", query="SELECT 1", fields={"a": "text"})
    for word in ("nothing", "secret"):
        with pytest.raises(InvalidDistributionInputs, match=f'unknown dataset "{word}". Declared datasets: '):
            await scene.submit(dataset=word)


async def test_inputs_above_maximum_count_are_rejected(scene: Scene) -> None:
    scene.settings = scene.settings.model_copy(update={"max_distribution_inputs": 2})
    with pytest.raises(InvalidDistributionInputs, match="at most 2 inputs, got 3"):
        await scene.submit(given("A"), given("B"), given("C"))


async def test_invalid_inputs_report_at_most_100_faults(scene: Scene) -> None:
    with pytest.raises(InvalidDistributionInputs) as refused:
        await scene.submit_these([given("A", "x") | {"kind": 1}] * 80)
    assert len(refused.value.faults) == 100


def test_unknown_fields_of_one_input_report_at_most_100_faults() -> None:
    with pytest.raises(InvalidDistributionInputs) as refused:
        DistributionInput.parse(FIELDS, given() | {f"index_key{n}": 1 for n in range(1_000)})
    assert len(refused.value.faults) == 100
