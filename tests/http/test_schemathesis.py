"""Schemathesis: responses to valid and invalid generated requests match the OpenAPI document."""

import zlib
from collections.abc import Iterator
from functools import cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.specs.openapi.checks import ignored_auth

from support.import_requests import MIXED
from support.openapi_document import DOCUMENT
from support.populated_api import LETTERS, Place, furnished
from tidemill.testing.throwaway_postgres import ThrowawayServer

SEED = 20_261_115
QUICK, FULL = 10, 400
CONFIG = {
    "seed": SEED,
    "generation": {"deterministic": True, "with-security-parameters": False},
    # Exclusive fields and cursors: rules that a schema cannot express. Other tests cover them.
    "checks": {"positive_data_acceptance": {"enabled": False}},
}
NEEDS_ROWS = ("fixes", "promote", "repairs", "preview")  # the import has failed rows
IMPORTS = ("POST /v1/imports", "POST /v1/imports/preview")
# Streams do not end, so reading one to its end blocks. test_job_event_routes covers them.
LABELS = [
    f"{method.upper()} {path}"
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
    if not path.endswith("/events")
]


@cache
def schema() -> Any:
    return schemathesis.openapi.from_dict(DOCUMENT, config=schemathesis.Config.from_dict(CONFIG))


@pytest.fixture(scope="module")
def place(tidemill_server: ThrowawayServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    url = tidemill_server.create_database()
    with furnished(url, tmp_path_factory.mktemp("home")) as found:
        yield found
    tidemill_server.drop_database(url)


Case = schemathesis.Case[Any]
schemathesis.serializer.alias(["application/x-ndjson", "application/zip", "image/png"], "application/octet-stream")


class Sender:
    """Sends cases as one of two users, mostly to existing resources, so that they do not end with 404."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._excluded: list[Any] = []
        self._untouched: dict[str, Any] = {}
        self._user = 0
        self.statuses: set[int] = set()

    def __call__(self, case: Case) -> None:
        hypothesis.assume(not _changes_on_its_way(case))
        lot = zlib.crc32(repr(case).encode(errors="replace"))
        self._fit(case, lot)
        is_any_accepted = any(status < 400 for status in self.statuses)
        headers = self._place.people[lot % 2 if is_any_accepted else self._user]
        url = self._place.api.url
        response = case.call(url, self._session, headers, allow_redirects=False, timeout=60)
        self.statuses.add(response.status_code)
        if response.status_code == 403:
            self._user = 1 - self._user  # the other user may be allowed to send this request
        if response.status_code < 400:
            self._untouched.clear()
        sent = {"headers": headers, "base_url": url, "timeout": 60}
        case.validate_response(response, headers=headers, transport_kwargs=sent, excluded_checks=self._excluded)
        if 200 <= response.status_code < 300:
            self._excluded = [ignored_auth]  # avoids three more requests per case; authentication is already verified

    def _fit(self, case: Case, lot: int) -> None:
        if case.path_parameters and lot % 5 and _is_good(case, ParameterLocation.PATH):
            case.path_parameters = {name: self._value(case, name, lot) for name in case.path_parameters}
        if "/v1/imports" in case.operation.path:
            if case.meta is None or not case.meta.generation.mode.is_negative:
                _fit_import(case, lot)
        elif isinstance(case.body, dict) and _is_good(case, ParameterLocation.BODY):
            case.body = self._body(case.operation.path, case.body)
        if case.operation.label == "GET /v1/exports" and _is_good(case, ParameterLocation.QUERY):
            case.query = {"resource": "people", "format": ("csv", "ndjson")[lot % 2]} if lot % 3 else {"page_size": 5}
        if case.operation.label == "POST /v1/jobs" and _is_good(case, ParameterLocation.QUERY):
            known = {"kind": "echo", "params": "{}", "policy": "{}"}
            is_json = case.media_type == "application/json"
            case.query = {} if is_json else {name: known.get(name, value) for name, value in case.query.items()}

    def _value(self, case: Case, name: str, lot: int) -> Any:
        """Return values for path parameters: a new resource if the request may delete it, otherwise a shared one."""
        if name not in self._untouched:
            made = self._new(case, name)
            if made is None:
                known = getattr(self._place.things, name)
                return known[lot // 7 % len(known)]
            self._untouched[name] = made
        return self._untouched[name]

    def _new(self, case: Case, name: str) -> str | None:
        method, verb = case.operation.method.upper(), case.operation.path.rpartition("/")[2]
        if name == "job" and (method == "DELETE" or verb in ("pause", "resume", "cancel", "kickoff")):
            return self._place.job(is_paused=verb == "resume")
        if name == "import_id" and method == "POST" and "/undo" in case.operation.path:
            return self._place.undoable()
        if name == "import_id" and verb in ("pause", "resume", "cancel", *NEEDS_ROWS):
            return self._place.trial(is_paused=verb == "resume", is_done=verb in NEEDS_ROWS)
        if verb == "cancel" and name in ("export", "distribution_id", "operation_id"):
            return str(getattr(self._place, name.removesuffix("_id"))())
        if name == "job" and method == "PATCH":
            return self._place.job(is_failed=True)
        if name == "name" and method != "GET":
            return self._place.user()
        if name in ("link", "prefix", "mapping_id", "file_id"):
            return str(getattr(self._place, name)())
        return None

    def _body(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Fill in values that a schema cannot express: kinds, folders, secrets and exclusive fields."""
        if path == "/v1/session":
            return {"link": self._place.link()} if body.get("link") else {"key": self._place.api.keys["ada"]}
        if path == "/v1/users":
            return body | {"name": f"dora {zlib.crc32(repr(body).encode(errors='replace'))}"}
        if path == "/v1/exports":
            return body | {"resource": "people", "filters": {"age": {"gte": 1}}, "fields": ["email"], "order": []}
        if path == "/v1/distributions":
            return body | LETTERS | {"compression": None}
        if path == "/v1/ingestion/scan":
            return body | {"name": "letters"}
        if path != "/v1/jobs":
            return body
        fitting = body | {"kind": "echo"}
        if "file" in body:
            return {name: value for name, value in fitting.items() if name not in ("params", "policy")}
        if body.get("inputs") is None:
            return fitting | {"inputs": None, "source": {"name": "inbox", "path": "prices.csv"}}
        return fitting | {"source": None}


def _fit_import(case: Case, lot: int) -> None:
    """Replace form fields with consistent values and a valid file."""
    label, is_form = case.operation.label, isinstance(case.body, dict) and "file" in case.body
    if label == "GET /v1/imports" and lot % 2:
        case.query = {name: value for name, value in case.query.items() if name not in ("after", "user_id")}
    elif label in IMPORTS:
        has_words = case.media_type in ("application/json", "multipart/form-data")
        words: dict[str, Any] = {"resource": "people", "mode": "upsert"}
        case.query = {} if has_words else words
        if is_form:
            case.body = words | {"file": MIXED.decode()}
        elif has_words:
            case.body = words | {"source": {"name": "inbox", "path": "people.csv"}}
    elif "/repairs" in label and isinstance(case.body, dict):
        case.body = {"cause": "age.type", "rule": {"type": "drop"}}
    elif "/undo" in label and isinstance(case.body, dict):
        case.body = {"redo": False}
    elif label.endswith("/fixes"):
        case.query = {}
        if is_form:
            case.body = {"file": "_row,age\n2,1\n"}


def _changes_on_its_way(case: Case) -> bool:
    """Return whether an object in a query list is encoded as its keys: `[{"": 1}]` as `?statuses=`, which is valid."""
    values = (case.query or {}).values()
    return any(isinstance(part, dict) for value in values if isinstance(value, list) for part in value)


def _is_good(case: Case, location: ParameterLocation) -> bool:
    return case.meta is None or not case.meta.is_negative_at(location)


@pytest.mark.parametrize("examples", [QUICK, pytest.param(FULL, marks=pytest.mark.full)])
@pytest.mark.parametrize("label", LABELS)
def test_operation_responses_conform_to_openapi_document(place: Place, label: str, examples: int) -> None:
    send = Sender(place)

    def sends(case: Case) -> None:
        send(case)

    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
    config = HypothesisTestConfig(schema().config, list(HypothesisTestMode), settings=settings, seed=SEED)
    create_test(operation=schema().find_operation_by_label(label), test_func=sends, config=config)()
    assert any(status < 400 for status in send.statuses), f"no request was accepted: {send.statuses}"
