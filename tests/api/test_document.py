"""The OpenAPI document, as somebody sees it who makes a client of it."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from pydantic import BaseModel

from tidemill.api import service
from tidemill.api.examples import EXAMPLES
from tidemill.api.schemas.jobs import JobIn
from tidemill.config import Settings
from tidemill.store.database import Database
from tidemill.telemetry.metrics import Meter

APP = service.create(Database("postgresql://nowhere"), Settings(home="/nowhere"), meter=Meter())
DOCUMENT: dict[str, Any] = APP.openapi()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {one["operationId"]: one for methods in DOCUMENT["paths"].values() for one in methods.values()}
PROBLEM = "application/problem+json"


def test_the_document_is_one_by_its_own_standard() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()


def test_every_operation_has_a_plain_name_of_its_own_and_says_what_it_does() -> None:
    assert len(OPERATIONS) == sum(len(methods) for methods in DOCUMENT["paths"].values())
    for name, operation in OPERATIONS.items():
        assert name.isidentifier(), name
        assert "v1" not in name
        assert operation["summary"], name
        assert operation["description"].strip(), name
        assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}, name


def test_every_error_is_listed_with_an_example_of_itself() -> None:
    for name, operation in OPERATIONS.items():
        problems = {status: answer for status, answer in operation["responses"].items() if int(status) >= 400}
        assert {"422", "500", "503"} <= problems.keys(), name
        for status, answer in problems.items():
            if PROBLEM not in answer["content"]:
                assert (name, status) == ("get_health", "503")
                continue
            assert answer["content"][PROBLEM]["example"]["status"] == int(status), name
            assert "X-Request-ID" in answer["headers"], name


def test_whatever_takes_a_body_says_what_is_wrong_with_bodies() -> None:
    with_body = {name: one for name, one in OPERATIONS.items() if "requestBody" in one}
    assert {"submit_job", "fix_item", "add_key"} <= with_body.keys()
    for name, operation in with_body.items():
        assert {"400", "408", "413", "415"} <= operation["responses"].keys(), name


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_an_example_is_one(model: type[BaseModel]) -> None:
    model.model_validate(EXAMPLES[model])
    assert SCHEMAS[model.__name__]["examples"] == [EXAMPLES[model]]


def test_every_main_request_and_answer_has_an_example() -> None:
    shown = {model.__name__ for model in EXAMPLES}
    for name, operation in OPERATIONS.items():
        for body in json_bodies(operation):
            reference = body["schema"].get("$ref") or body["schema"]["items"]["$ref"]
            assert reference.rpartition("/")[2] in shown, name


def json_bodies(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    answers = [answer for status, answer in operation["responses"].items() if status[0] == "2"]
    for holder in (operation.get("requestBody", {}), *answers):
        body = holder.get("content", {}).get("application/json")
        if body is not None:
            yield body


def test_the_examples_of_a_submission_are_submissions() -> None:
    shown = OPERATIONS["submit_job"]["requestBody"]["content"]["application/json"]["examples"]
    assert shown.keys() == {"inputs", "source"}
    for example in shown.values():
        JobIn.model_validate(example["value"])


def test_whatever_is_one_of_a_few_words_has_a_name() -> None:
    named = {name for name, schema in SCHEMAS.items() if "enum" in schema}
    assert {"JobStatus", "ItemStatus", "BatchState", "OperationState", "ExportFormat", "PolicyMode"} <= named
    for name, schema in SCHEMAS.items():
        assert not [part for part in parts(schema.get("properties")) if "enum" in part], name
    for name, operation in OPERATIONS.items():
        assert not [part for part in parts(operation.get("parameters")) if "enum" in part], name


def parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(tree, dict):
        yield tree
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from parts(value)


def test_a_parameter_is_left_out_and_never_null() -> None:
    for name, operation in OPERATIONS.items():
        for parameter in operation.get("parameters", []):
            assert {"type": "null"} not in parameter["schema"].get("anyOf", []), f"{name} {parameter['name']}"


def test_every_reference_leads_somewhere() -> None:
    references = [part["$ref"] for part in parts(DOCUMENT) if isinstance(part.get("$ref"), str)]
    assert len(references) > 100
    for reference in references:
        _, group, name = reference.removeprefix("#/").split("/")
        assert name in DOCUMENT["components"][group], reference
