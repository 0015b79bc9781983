"""One row, matched: the next way to ask for it, what the service proposes, and whether that will do."""

from typing import Any
from uuid import UUID

from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.domain.matching import COLUMNS, KIND, MatchRequest, Query, judge
from tidemill.domain.matching.candidates import Candidate, result_of
from tidemill.domain.outcome import Fail, NotFound, Skip
from tidemill.domain.retry import RetryPolicy
from tidemill.domain.services import CallFailed, Refused
from tidemill.handlers.matching.gather import Gatherer
from tidemill.handlers.services import Directory, Orders, outcome_of
from tidemill.store.database import Database

CONCURRENCY = 200  # rows in hand; requests are bounded by the service
GATHERERS_KEPT = 64


def match_handler(db: Database, directory: Directory, retry: RetryPolicy) -> Handler:
    matcher = Matcher(db, directory, retry)
    options: dict[str, Any] = {"retry": retry, "columns": COLUMNS, "close": matcher.close}
    # Each request has a time limit of its own, and rows may wait for their turn as long as a limiter wants.
    return Handler(KIND, matcher.run, "async", concurrency=CONCURRENCY, timeout=None, **options)


class Matcher:
    def __init__(self, db: Database, directory: Directory, retry: RetryPolicy) -> None:
        self._directory = directory
        self._retry = retry
        self._orders: Orders[MatchRequest] = Orders(db, MatchRequest.of)
        self._gatherers: dict[UUID, Gatherer] = {}

    async def run(self, item: Item) -> dict[str, Any]:
        request = await self._orders.of(item.job_id)
        queries = _queries(request, item)
        query = queries[min(item.misses, len(queries) - 1)]
        candidates = await self._candidates(item, request.service, query)
        chosen = judge(candidates, request)
        result = result_of(chosen, candidates, query)
        if chosen is not None:
            return result
        is_last = item.misses + 1 >= len(queries)
        raise NotFound(_why(candidates, request), result=result, again=not is_last, after=request.not_found_delay)

    async def close(self) -> None:
        for gatherer in self._gatherers.values():
            await gatherer.close()
        await self._directory.close()

    async def _candidates(self, item: Item, service: str, query: Query) -> list[Candidate]:
        tries = item.attempt - item.misses
        alone = tries > 1 and tries >= self._retry.max_attempts  # its last: it fails by its own fault or not at all
        try:
            return await self._gatherer(item.job_id, service).ask(f"q{item.seq}", query, alone=alone)
        except Refused:
            raise
        except CallFailed as error:
            raise outcome_of(error, item, self._retry) from None

    def _gatherer(self, job_id: UUID, service: str) -> Gatherer:
        found = self._gatherers.get(job_id)
        if found is None:
            self._forget_idle()
            desk = self._directory.desk(service)
            found = self._gatherers[job_id] = Gatherer(desk, lambda: self._orders.insist(job_id))
        return found

    def _forget_idle(self) -> None:
        if len(self._gatherers) >= GATHERERS_KEPT:
            self._gatherers = {key: one for key, one in self._gatherers.items() if not one.is_idle}


def _queries(request: MatchRequest, item: Item) -> list[Query]:
    row = item.input
    if not isinstance(row, dict):
        raise Fail("the row is no object with columns", code="invalid")
    if request.query not in row:
        raise Fail(f"the row has no column {request.query!r}", code="invalid", details={"field": request.query})
    queries = request.queries(row)
    if not queries:
        raise Skip(f"there is nothing to look for: {request.query} is empty")
    return queries


def _why(candidates: list[Candidate], request: MatchRequest) -> str:
    if not candidates:
        return "the service has no candidates"
    best = candidates[0]
    score = "no score" if best.score is None else f"the score {best.score:g}"
    wanted = "none is called a match" if request.threshold is None else f"the threshold is {request.threshold:g}"
    return f"the best of {len(candidates)} candidates, {best.name[:100]}, has {score}; {wanted}"
