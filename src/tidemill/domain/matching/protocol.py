"""The W3C Reconciliation API: 0.2, which OpenRefine and most services speak, and the draft of 1.0."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tidemill.domain.matching.candidates import Candidate, read_candidates
from tidemill.domain.matching.strategies import Query
from tidemill.domain.services.calls import unusable
from tidemill.domain.services.service import Protocol

FORM, JSON = "application/x-www-form-urlencoded", "application/json"


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent, behind the address of the service."""

    path: str
    content_type: str
    body: bytes


Answer = list[Candidate] | str
"""The candidates of a row, or why they cannot be read."""


def encode(queries: Mapping[str, Query], protocol: Protocol) -> Message:
    """One request for several rows; ids are of the rows, so that an answer to another request does not fit."""
    if protocol == "1.0":
        body = {"queries": [_query_of_draft(query) for query in queries.values()]}
        return Message("/match", JSON, _json(body))
    asked = {id_: _query(query) for id_, query in queries.items()}
    return Message("", FORM, urlencode({"queries": _json(asked).decode()}).encode())


def decode(body: bytes, queries: Mapping[str, Query], protocol: Protocol) -> dict[str, Answer]:
    """What is said of each row; CallFailed where nothing is said of any."""
    document = parse(body)
    if protocol == "1.0":
        return _decode_draft(document, queries)
    if not any(id_ in document for id_ in queries):
        raise unusable(_told(document) or "it is about none of the rows that were asked for")
    return {id_: _answer(document.get(id_), "result", query) for id_, query in queries.items()}


def parse(body: bytes) -> dict[str, Any]:
    """A JSON object. What JSON cannot say, such as NaN, is found where it stands, not here."""
    try:
        document = json.loads(body, parse_constant=lambda _: math.nan)
    except (ValueError, RecursionError):
        look = body[:200].lstrip().lower()
        what = "a page in HTML" if look.startswith((b"<!doctype", b"<html")) else "no JSON, or not all of it"
        raise unusable(f"it is {what}") from None
    if not isinstance(document, dict):
        raise unusable("it is no JSON object")
    return document


def batch_size_in(manifest: Mapping[str, Any]) -> int | None:
    """How many queries at once the service says it takes."""
    said = manifest.get("batchSize")
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None


def _decode_draft(document: Mapping[str, Any], queries: Mapping[str, Query]) -> dict[str, Answer]:
    """By their order: nothing else tells them apart, so there must be as many as were asked for."""
    results = document.get("results")
    if not isinstance(results, list) or len(results) != len(queries):
        raise unusable(_told(document) or f"it is not about the {len(queries)} rows that were asked for")
    pairs = zip(queries.items(), results, strict=True)
    return {id_: _answer(result, "candidates", query) for (id_, query), result in pairs}


def _answer(said: Any, name: str, query: Query) -> Answer:
    if not isinstance(said, Mapping):
        return "it says nothing of this row"
    try:
        return read_candidates(said.get(name), query.limit)
    except ValueError as error:
        return str(error)


def _told(document: Mapping[str, Any]) -> str | None:
    """Some services answer 200 and mean no."""
    return 'it is an error: {"status": "error", …}' if document.get("status") == "error" else None


def _query(query: Query) -> dict[str, Any]:
    asked: dict[str, Any] = {"query": query.text, "limit": query.limit}
    if query.type is not None:
        asked["type"] = query.type
    if query.properties:
        asked["properties"] = [{"pid": pid, "v": value} for pid, value in query.properties]
    return asked


def _query_of_draft(query: Query) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = [{"matchType": "name", "propertyValue": query.text}]
    conditions += [
        {"matchType": "property", "propertyId": pid, "propertyValue": value, "required": False}
        for pid, value in query.properties
    ]
    kind = {} if query.type is None else {"type": query.type}
    return kind | {"limit": query.limit, "conditions": conditions}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
