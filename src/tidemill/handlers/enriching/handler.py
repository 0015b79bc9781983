"""One row, one request, and what is taken from its answer."""

import json
from typing import Any

from tidemill.domain.enriching import KIND, EnrichRequest
from tidemill.domain.enriching.template import Empty, Upwards, fill_json, fill_path
from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.domain.outcome import Fail, NotFound, Skip
from tidemill.domain.retry import RetryPolicy
from tidemill.domain.services import CallFailed, Refused
from tidemill.domain.services.calls import NOTHING_THERE, Answered, described, unusable
from tidemill.handlers.services import Directory, Orders, outcome_of
from tidemill.store.database import Database

CONCURRENCY = 50


def enrich_handler(db: Database, directory: Directory, retry: RetryPolicy) -> Handler:
    call = Enricher(db, directory, retry).run
    # Each request has a time limit of its own, and rows may wait for their turn as long as a limiter wants.
    return Handler(KIND, call, "async", concurrency=CONCURRENCY, timeout=None, retry=retry, close=directory.close)


class Enricher:
    def __init__(self, db: Database, directory: Directory, retry: RetryPolicy) -> None:
        self._directory = directory
        self._retry = retry
        self._orders: Orders[EnrichRequest] = Orders(db, EnrichRequest.of)

    async def run(self, item: Item) -> dict[str, Any]:
        request = await self._orders.of(item.job_id)
        path = _path(request, item)
        try:
            answered = await self._ask(request, item, path)
            if answered.status in NOTHING_THERE:
                raise NotFound(f"the service answered {described(answered.status)}")
            result = request.result_of(_parsed(answered.body))
        except Refused:
            raise
        except CallFailed as error:
            raise outcome_of(error, item, self._retry) from None
        missing = request.missing_in(result)
        if missing:
            raise NotFound(f"the answer has no {', '.join(missing)}", result=result)
        return result

    async def _ask(self, request: EnrichRequest, item: Item, path: str) -> Answered:
        headers = list(request.headers.items())
        content = b""
        if request.method == "POST":
            content = json.dumps(fill_json(request.body, item.input), ensure_ascii=False).encode(errors="replace")
            headers.append(("Content-Type", "application/json"))
        desk = self._directory.desk(request.service)
        await desk.enter()
        try:
            insist = lambda: self._orders.insist(item.job_id)  # noqa: E731  as short as it is
            return await desk.ask(request.method, path, insist=insist, headers=headers, content=content)
        finally:
            desk.leave()


def _path(request: EnrichRequest, item: Item) -> str:
    row = item.input
    if not isinstance(row, dict):
        raise Fail("the row is no object with columns", code="invalid")
    missing = [column for column in request.columns if column not in row]
    if missing:
        raise Fail(f"the row has no column {missing[0]!r}", code="invalid", details={"field": missing[0]})
    try:
        return fill_path(request.path, row)
    except Empty as empty:
        raise Skip(f"there is nothing to ask with: {empty.column} is empty") from None
    except Upwards:
        raise Fail("a value leads upwards in the path: it has . or .. between slashes", code="invalid") from None


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise unusable("it is no JSON, or not all of it") from None
