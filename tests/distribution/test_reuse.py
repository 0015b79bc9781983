"""When a file that was made before is used again: the decision by itself, and on the database's clock."""

from datetime import date
from typing import Any

import pytest

from distribution.scenes import PRICES, Scene, given
from support import rows, shift_clock
from tidemill.config import load_settings
from tidemill.domain.distribution import Artifact, decide
from tidemill.domain.form import FileFormat

TODAY = date(2026, 1, 10)
MADE = Artifact("s3://bucket/exports/a.csv", 1, 2, "00", "csv")

# enabled, a file is known, how old the input is in days, the days of the rule -> what is done
TABLE = [
    (False, False, 0, 7, "generate"),
    (False, True, 365, 7, "generate"),
    (True, False, 365, 7, "generate"),
    (True, False, 0, 7, "generate"),
    (True, True, -1, 7, "generate"),
    (True, True, 0, 7, "generate"),
    (True, True, 6, 7, "generate"),
    (True, True, 7, 7, "reuse"),
    (True, True, 8, 7, "reuse"),
    (True, True, 365, 7, "reuse"),
    (True, True, 0, 0, "reuse"),
    (True, True, -1, 0, "generate"),
]


@pytest.mark.parametrize(("enabled", "known", "age", "days", "done"), TABLE)
def test_the_decision(enabled: bool, known: bool, age: int, days: int, done: str) -> None:
    day = date.fromordinal(TODAY.toordinal() - age)
    artifact = MADE if known else None
    assert decide(enabled=enabled, artifact=artifact, effective_date=day, today=TODAY, days=days) == done


def test_what_has_no_date_is_never_final() -> None:
    assert decide(enabled=True, artifact=MADE, effective_date=None, today=TODAY, days=0) == "generate"


async def test_the_same_table_holds_from_end_to_end_on_the_clock_of_the_database(scene: Scene) -> None:
    """One file for each known input first, then a distribution for each line, all at one moment of that clock."""
    await shift_clock(scene.db, "400 days")
    [(today,)] = await rows(scene.db, "SELECT (tidemill.now() AT TIME ZONE 'UTC')::date")

    def of_line(number: int, age: int) -> dict[str, Any]:
        return given(f"LINE{number}", f"{date.fromordinal(today.toordinal() - age):%Y%m%d}")

    await scene.run(*(of_line(number, line[2]) for number, line in enumerate(TABLE) if line[1]))
    made_before = {path for _, path, *_ in await scene.artifacts()}
    jobs = [
        await scene.submit(of_line(number, age), reuse_enabled=enabled, reuse_days=days)
        for number, (enabled, _, age, days, _) in enumerate(TABLE)
    ]
    await scene.finish(jobs[0])
    for job_id, line in zip(jobs, TABLE, strict=True):
        (told,) = await scene.content(job_id)
        assert told["reused"] == (line[4] == "reuse"), line
        assert (told["path"] in made_before) == told["reused"], line
        files = await scene.files(job_id)
        assert (files.generated, files.reused) == (int(not told["reused"]), int(told["reused"]))
    await scene.assert_whole()


async def test_time_makes_an_input_final(scene: Scene) -> None:
    [(today,)] = await rows(scene.db, "SELECT (tidemill.now() AT TIME ZONE 'UTC')::date")
    young = given("ABC", f"{today:%Y%m%d}")
    assert [(await scene.run(young))[0]["reused"] for _ in range(2)] == [False, False]
    await shift_clock(scene.db, "7 days")
    assert (await scene.run(young))[0]["reused"] is True


@pytest.mark.parametrize(
    ("settings_", "reused"),
    [({}, True), ({"REUSE_ENABLED": "false"}, False), ({"REUSE_DAYS": "30"}, False), ({"REUSE_DAYS": "10"}, True)],
)
async def test_what_a_request_leaves_open_the_settings_say(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, settings_: dict[str, str], reused: bool
) -> None:
    [(day,)] = await rows(scene.db, "SELECT (tidemill.now() AT TIME ZONE 'UTC')::date - 10")
    for name, value in settings_.items():
        monkeypatch.setenv(f"TIDEMILL_{name}", value)
    read = load_settings()
    scene.settings = scene.settings.model_copy(
        update={"reuse_enabled": read.reuse_enabled, "reuse_days": read.reuse_days}
    )
    old = given("ABC", f"{day:%Y%m%d}")
    await scene.run(old)
    assert (await scene.run(old))[0]["reused"] is reused


async def test_a_file_that_is_used_again_lies_where_it_was_made_and_nothing_is_written(scene: Scene) -> None:
    (first,) = await scene.run()
    stored, known = scene.stored(), await rows(scene.db, "SELECT * FROM tidemill.artifact")
    (second,) = await scene.run()
    assert second["reused"]
    assert {name: second[name] for name in ("path", "rows", "size", "sha256")} == {
        name: first[name] for name in ("path", "rows", "size", "sha256")
    }
    assert scene.stored() == stored
    assert await rows(scene.db, "SELECT * FROM tidemill.artifact") == known


async def test_a_file_that_is_gone_is_made_again(scene: Scene) -> None:
    (first,) = await scene.run()
    scene.remove(first["path"])
    (second,) = await scene.run()
    assert not second["reused"]
    assert second["path"] != first["path"]
    assert [path for _, path, *_ in await scene.artifacts()] == [second["path"]]
    await scene.assert_whole()


async def test_many_files_of_one_folder_are_looked_for_together_and_the_gone_ones_made_again(scene: Scene) -> None:
    inputs = [given(f"KEY{n}") for n in range(50)]
    first = await scene.run(*inputs)
    for one in first[::7]:
        scene.remove(one["path"])
    second = await scene.run(*inputs)
    assert [one["reused"] for one in second] == [n % 7 != 0 for n in range(50)]
    await scene.assert_whole()


async def test_reuse_never_crosses_datasets(scene: Scene) -> None:
    scene.mill.dataset("twins", **PRICES)
    (first,) = await scene.run()
    (other,) = await scene.run(dataset="twins")
    assert not other["reused"]
    assert len({path for _, path, *_ in await scene.artifacts()}) == 2
    assert (await scene.run())[0]["path"] == first["path"]


async def test_a_file_in_another_format_will_not_do(scene: Scene) -> None:
    await scene.run()
    (lines,) = await scene.run(format=FileFormat.NDJSON)
    assert not lines["reused"]
    assert (await scene.run(format=FileFormat.NDJSON))[0]["reused"]


async def test_spellings_of_one_input_are_one_input(scene: Scene) -> None:
    await scene.run(given("ABC", 20240202))
    (again,) = await scene.run({"asofindicator": "CLS", "effectiveDate": "2024-02-02", "indexKey": "ABC"})
    assert again["reused"]


async def test_a_dataset_without_a_date_is_made_anew_each_time(scene: Scene) -> None:
    scene.mill.dataset("dateless", **{name: value for name, value in PRICES.items() if name != "date_field"})
    assert [(await scene.run(dataset="dateless"))[0]["reused"] for _ in range(2)] == [False, False]
