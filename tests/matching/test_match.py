"""Rows against a real reconciliation service that is not ours."""

from matching.scenes import Scene
from matching.services import CsvReconcile
from tidemill.domain.matching import COLUMNS


async def test_rows_are_matched_with_their_candidates(scene: Scene, csv_reconcile: CsvReconcile) -> None:
    scene.declare("names", csv_reconcile.url)
    ada, alan, nobody = await scene.match(
        ["Ada Lovelace", "Allan Turing", "Zzyzx Qwq"], threshold=80, strategies=["exact"]
    )
    assert (ada.status, ada.result["id"], ada.result["score"]) == ("done", csv_reconcile.ids["Ada Lovelace"], 100.0)
    assert (alan.status, alan.result["name"], alan.result["query"]) == ("done", "Alan Turing", "Allan Turing")
    assert alan.result["candidates"][0]["name"] == "Alan Turing"
    assert (nobody.status, nobody.result["id"], nobody.result["candidates"]) == ("not_found", None, [])
    assert set(ada.result) == set(COLUMNS)


async def test_below_the_threshold_the_best_candidates_are_kept(scene: Scene, csv_reconcile: CsvReconcile) -> None:
    scene.declare("names", csv_reconcile.url)
    (row,) = await scene.match(["Grace Hoppner"], threshold=99)
    assert row.status == "not_found"
    assert (row.result["id"], row.result["match"]) == (None, False)
    assert row.result["candidates"][0]["name"] == "Grace Hopper"
    assert 50 < row.result["score"] < 99
    assert "Grace Hopper" in row.error["reason"]
    assert "threshold is 99" in row.error["reason"]


async def test_the_columns_of_the_grid_are_there_before_the_first_result(
    scene: Scene, csv_reconcile: CsvReconcile
) -> None:
    scene.declare("names", csv_reconcile.url)
    job_id = await scene.submit([{"name": "Ada Lovelace"}])
    assert (await scene.job(job_id)).result_columns == COLUMNS
