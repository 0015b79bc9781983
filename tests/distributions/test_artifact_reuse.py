"""Reuse of existing files: the decision rule alone, and end to end with the clock of the database."""

from datetime import date
from typing import Any

import pytest

from distributions.scenes import PRICES, QUERY, Scene, given
from support import rows, shift_clock
from tidemill import Mill
from tidemill.app.mill_declarations import DatasetOptions
from tidemill.config import load_settings
from tidemill.core.file_format import FileFormat
from tidemill.distributions.distribution_request import Artifact, decide_artifact_reuse
from tidemill.testing import drain

TODAY = date(2026, 1, 10)
MADE = Artifact("s3://bucket/exports/a.csv", 1, 2, "00", "csv")

# reuse enabled, file exists, age of the input in days, days of the policy -> decision
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
def test_reuse_decision_follows_switch_artifact_and_input_age(
    enabled: bool, known: bool, age: int, days: int, done: str
) -> None:
    day = date.fromordinal(TODAY.toordinal() - age)
    artifact = MADE if known else None
    assert decide_artifact_reuse(enabled=enabled, artifact=artifact, effective_date=day, today=TODAY, days=days) == done


def test_reuse_is_denied_for_input_without_date() -> None:
    assert decide_artifact_reuse(enabled=True, artifact=MADE, effective_date=None, today=TODAY, days=0) == "generate"


async def test_reuse_decision_holds_end_to_end_on_database_clock(scene: Scene) -> None:
    """Generate the existing files first, then run one distribution per line of the table, all on the same day."""
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
        (view,) = await scene.content(job_id)
        assert view["reused"] == (line[4] == "reuse"), line
        assert (view["path"] in made_before) == view["reused"], line
        files = await scene.files(job_id)
        assert (files.generated, files.reused) == (int(not view["reused"]), int(view["reused"]))
    await scene.assert_whole()


async def test_artifact_is_reused_once_input_is_old_enough(scene: Scene) -> None:
    [(today,)] = await rows(scene.db, "SELECT (tidemill.now() AT TIME ZONE 'UTC')::date")
    young = given("ABC", f"{today:%Y%m%d}")
    assert [(await scene.run(young))[0]["reused"] for _ in range(2)] == [False, False]
    await shift_clock(scene.db, "7 days")
    assert (await scene.run(young))[0]["reused"] is True


@pytest.mark.parametrize(
    ("settings_", "reused"),
    [({}, True), ({"REUSE_ENABLED": "false"}, False), ({"REUSE_DAYS": "30"}, False), ({"REUSE_DAYS": "10"}, True)],
)
async def test_reuse_settings_apply_when_request_omits_them(
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


async def test_reused_artifact_keeps_its_path_and_nothing_is_written(scene: Scene) -> None:
    (first,) = await scene.run()
    stored, known = scene.stored(), await rows(scene.db, "SELECT * FROM tidemill.artifact")
    (second,) = await scene.run()
    assert second["reused"]
    assert {name: second[name] for name in ("path", "rows", "size", "sha256")} == {
        name: first[name] for name in ("path", "rows", "size", "sha256")
    }
    assert scene.stored() == stored
    assert await rows(scene.db, "SELECT * FROM tidemill.artifact") == known


@pytest.mark.parametrize("change", [PRICES | {"query": f"{QUERY} LIMIT 2"}, PRICES | {"version": "2"}])
async def test_file_of_changed_dataset_is_regenerated(scene: Scene, change: DatasetOptions) -> None:
    await scene.run()
    scene.mill.dataset("prices", **change)
    assert (await scene.run())[0]["reused"] is False
    assert (await scene.run())[0]["reused"] is True


async def test_worker_without_dataset_leaves_job_to_worker_that_declares_it(scene: Scene) -> None:
    job_id = await scene.submit()
    await drain(Mill(scene.settings), db=scene.db)
    assert (await scene.job(job_id)).status == "pending"
    (view,) = await scene.finish(job_id)
    assert view["status"] == "done"


async def test_missing_artifact_is_regenerated(scene: Scene) -> None:
    (first,) = await scene.run()
    scene.remove(first["path"])
    (second,) = await scene.run()
    assert not second["reused"]
    assert second["path"] != first["path"]
    assert [path for _, path, *_ in await scene.artifacts()] == [second["path"]]
    await scene.assert_whole()


async def test_missing_artifacts_of_folder_are_regenerated_and_others_reused(scene: Scene) -> None:
    inputs = [given(f"KEY{n}") for n in range(50)]
    first = await scene.run(*inputs)
    for one in first[::7]:
        scene.remove(one["path"])
    second = await scene.run(*inputs)
    assert [one["reused"] for one in second] == [n % 7 != 0 for n in range(50)]
    await scene.assert_whole()


async def test_artifact_is_not_reused_across_datasets(scene: Scene) -> None:
    scene.mill.dataset("twins", **PRICES)
    (first,) = await scene.run()
    (other,) = await scene.run(dataset="twins")
    assert not other["reused"]
    assert len({path for _, path, *_ in await scene.artifacts()}) == 2
    assert (await scene.run())[0]["path"] == first["path"]


async def test_artifact_is_not_reused_for_another_format(scene: Scene) -> None:
    await scene.run()
    (lines,) = await scene.run(format=FileFormat.NDJSON)
    assert not lines["reused"]
    assert (await scene.run(format=FileFormat.NDJSON))[0]["reused"]


async def test_artifact_is_reused_for_other_spelling_of_same_input(scene: Scene) -> None:
    await scene.run(given("ABC", 20240202))
    (again,) = await scene.run({"asofindicator": "CLS", "effectiveDate": "2024-02-02", "indexKey": "ABC"})
    assert again["reused"]


async def test_dataset_without_date_field_is_regenerated_each_time(scene: Scene) -> None:
    scene.mill.dataset("dateless", query=PRICES["query"], fields=PRICES["fields"], read=PRICES["read"])
    assert [(await scene.run(dataset="dateless"))[0]["reused"] for _ in range(2)] == [False, False]
