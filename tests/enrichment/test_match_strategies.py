"""Strategies: the queries that a match job tries for a row."""

import pytest

from enrichment.scenes import Scene
from support.reconciliation_services import Reply, Request, Scripted, named, told
from tidemill.core.errors import InvalidRequest
from tidemill.enrichment.job_requests import MatchRequest, normalize_entity_name

ASKED = {"service": "names", "query": "name"}


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Müller Maschinenbau GmbH & Co. KG", "muller maschinenbau"),
        ("Société Générale S.A.", "societe generale"),
        ("Łódź Trading Sp. z o.o.", "lodz trading"),
        ("  ACME,   Inc. ", "acme"),
        ("O'Neill\u2019s Straße G.m.b.H.", "oneills strasse"),
        ("AG", "ag"),
        ("As You Like It", "as you like it"),
        ("株式会社 トヨタ", "株式会社 トヨタ"),
        ("...", ""),
    ],
)
def test_normalized_name_drops_case_accents_and_legal_forms(name: str, plain: str) -> None:
    assert normalize_entity_name(name) == plain


def test_each_strategy_builds_a_different_query() -> None:
    request = MatchRequest.from_params(ASKED | {"type": "Q43229", "properties": {"P17": "land"}})
    row = {"name": "ACME, Inc.", "land": "US"}
    queries = [(query.strategy, query.text, query.type) for query in request.build_queries(row)]
    assert queries == [
        ("exact", "ACME, Inc.", "Q43229"),
        ("normalized", "acme", "Q43229"),
        ("normalized+without_type", "acme", None),
    ]
    assert all(query.properties == (("P17", "US"),) for query in request.build_queries(row))
    untyped = MatchRequest.from_params(ASKED)
    assert [query.strategy for query in untyped.build_queries({"name": "acme"})] == ["exact"]


def test_column_and_without_properties_strategies_change_the_query() -> None:
    strategies = ["exact", "column:alias", "column:alias+normalized+without_properties"]
    request = MatchRequest.from_params(ASKED | {"strategies": strategies, "properties": {"P17": "land"}})
    queries = request.build_queries({"name": "", "alias": "ÖBB AG", "land": "AT"})
    assert [(query.text, query.properties) for query in queries] == [("ÖBB AG", (("P17", "AT"),)), ("obb", ())]


def test_invalid_match_request_reports_all_problems() -> None:
    wrong = {"querry": "x", "threshold": "high", "limit": 0, "strategies": ["exact", "guess"], "properties": ["P17"]}
    with pytest.raises(InvalidRequest) as caught:
        MatchRequest.from_params(wrong)
    problems = "\n".join(caught.value.problems)
    for word in (
        "params.service: Field required",
        "params.query: Field required",
        'did you mean "query"?',
        "params.limit",
    ):
        assert word in problems
    assert 'params.strategies: must be one of "exact"' in problems
    assert 'not "guess"' in problems
    assert "params.threshold: Input should be a valid number" in problems
    assert "params.properties" in problems
    assert len(caught.value.problems) == 7


async def test_row_not_found_is_retried_with_next_strategy(scene: Scene, service: Scripted) -> None:
    def answer(request: Request) -> Reply:
        known = {"acme": [named("ACME", 95, match=False)]}
        return told({id_: {"result": known.get(query["query"], [])} for id_, query in request.queries.items()})

    service.answer = answer
    found, missing = await scene.match(["ACME, Inc.", "Nobody Ltd."], threshold=90)
    assert (found.status, found.result["strategy"], found.attempts) == ("done", "normalized", 2)
    assert (missing.status, missing.result["strategy"], missing.attempts) == ("not_found", "normalized", 2)
    assert [sorted(query["query"] for query in request.queries.values()) for request in service.requests] == [
        ["ACME, Inc.", "Nobody Ltd."],
        ["acme", "nobody"],
    ]


async def test_service_error_retries_same_strategy(scene: Scene, service: Scripted) -> None:
    """Two strategies that each fail once: neither is skipped, and "not found" does not count as an attempt."""

    def answer(request: Request) -> Reply:
        if len(service.requests) in (1, 3):
            return Reply(500)
        return told({id_: {"result": []} for id_ in request.queries})

    service.answer = answer
    (row,) = await scene.match(["ACME, Inc."])
    assert (row.status, row.attempts) == ("not_found", 4)
    assert [query["query"] for request in service.requests for query in request.queries.values()] == [
        *["ACME, Inc."] * 2,
        *["acme"] * 2,
    ]


async def test_reprocessed_row_starts_with_first_strategy(scene: Scene, service: Scripted) -> None:
    service.answer = lambda request: told({id_: {"result": []} for id_ in request.queries})
    job_id = await scene.submit([{"name": "ACME, Inc."}])
    await scene.drain()
    assert len(service.requests) == 2
    await scene.reprocess(job_id)
    await scene.drain()
    assert [next(iter(request.queries.values()))["query"] for request in service.requests[2:]] == ["ACME, Inc.", "acme"]
    (row,) = await scene.rows(job_id)
    assert row.status == "not_found"


async def test_row_without_query_text_is_skipped_or_fails_as_invalid(scene: Scene, service: Scripted) -> None:
    empty, other, no_object = await scene.run([{"name": "  "}, {"title": "Ada"}, "Ada"])
    assert (empty.status, other.status, no_object.status) == ("skipped", "failed", "failed")
    assert (other.error["code"], other.error["field"]) == ("invalid", "name")
    assert service.requests == []


async def test_match_request_sends_type_properties_and_limit(scene: Scene, service: Scripted) -> None:
    await scene.run([{"name": "Ada", "born": 1815}], type="Q5", properties={"P569": "born"}, limit=3)
    (request,) = service.requests
    assert request.queries == {
        "q0": {"query": "Ada", "limit": 3, "type": "Q5", "properties": [{"pid": "P569", "v": "1815"}]}
    }
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
