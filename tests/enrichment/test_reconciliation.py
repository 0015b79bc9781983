"""Match jobs against a real reconciliation service."""

from enrichment.scenes import Scene
from support.reconciliation_services import CsvReconcile
from tidemill.enrichment.job_requests import MATCH_COLUMNS


async def test_match_returns_best_candidate_of_real_service(scene: Scene, csv_reconcile: CsvReconcile) -> None:
    scene.declare("names", csv_reconcile.url)
    ada, alan, unknown = await scene.match(
        ["Ada Lovelace", "Allan Turing", "Zzyzx Qwq"], threshold=80, strategies=["exact"]
    )
    assert (ada.status, ada.result["id"], ada.result["score"]) == ("done", csv_reconcile.ids["Ada Lovelace"], 100.0)
    assert (alan.status, alan.result["name"], alan.result["query"]) == ("done", "Alan Turing", "Allan Turing")
    assert alan.result["candidates"][0]["name"] == "Alan Turing"
    assert (unknown.status, unknown.result["id"], unknown.result["candidates"]) == ("not_found", None, [])
    assert set(ada.result) == set(MATCH_COLUMNS)


async def test_match_below_threshold_is_not_found_and_keeps_candidates(
    scene: Scene, csv_reconcile: CsvReconcile
) -> None:
    scene.declare("names", csv_reconcile.url)
    (row,) = await scene.match(["Grace Hoppner"], threshold=99)
    assert row.status == "not_found"
    assert (row.result["id"], row.result["match"]) == (None, False)
    assert row.result["candidates"][0]["name"] == "Grace Hopper"
    assert 50 < row.result["score"] < 99
    assert "Grace Hopper" in row.error["reason"]
    assert "threshold is 99" in row.error["reason"]


async def test_match_job_has_result_columns_before_first_result(scene: Scene, csv_reconcile: CsvReconcile) -> None:
    scene.declare("names", csv_reconcile.url)
    job_id = await scene.submit([{"name": "Ada Lovelace"}])
    assert (await scene.job(job_id)).result_columns == MATCH_COLUMNS
