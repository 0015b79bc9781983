"""The OpenAPI document is complete for client authors."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from pydantic import BaseModel

from support.openapi_document import DOCUMENT
from tidemill.app.feature_list import load_features
from tidemill.http.openapi import load_examples
from tidemill.jobs.schemas import JobIn

EXAMPLES = load_examples(load_features())

SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {one["operationId"]: one for methods in DOCUMENT["paths"].values() for one in methods.values()}
PROBLEM = "application/problem+json"


def test_openapi_document_is_valid() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()


def test_openapi_operations_have_unique_ids_summaries_and_descriptions() -> None:
    assert len(OPERATIONS) == sum(len(methods) for methods in DOCUMENT["paths"].values())
    for name, operation in OPERATIONS.items():
        assert name.isidentifier(), name
        assert "v1" not in name
        assert operation["summary"], name
        assert operation["description"].strip(), name
        assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}, name


def test_openapi_error_responses_have_problem_examples() -> None:
    for name, operation in OPERATIONS.items():
        problems = {status: answer for status, answer in operation["responses"].items() if int(status) >= 400}
        assert {"422", "500", "503"} <= problems.keys(), name
        for status, answer in problems.items():
            if PROBLEM not in answer["content"]:
                assert (name, status) == ("get_health", "503")
                continue
            assert answer["content"][PROBLEM]["example"]["status"] == int(status), name
            assert "X-Request-ID" in answer["headers"], name


def test_openapi_operations_with_body_document_body_errors() -> None:
    with_body = {name: one for name, one in OPERATIONS.items() if "requestBody" in one}
    assert {"submit_job", "fix_item_input", "add_key"} <= with_body.keys()
    for name, operation in with_body.items():
        assert {"400", "408", "413", "415"} <= operation["responses"].keys(), name


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_openapi_example_validates_against_its_model(model: type[BaseModel]) -> None:
    model.model_validate(EXAMPLES[model])
    assert SCHEMAS[model.__name__]["examples"] == [EXAMPLES[model]]


def test_openapi_json_requests_and_responses_have_examples() -> None:
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


def test_openapi_submit_job_examples_validate_as_requests() -> None:
    shown = OPERATIONS["submit_job"]["requestBody"]["content"]["application/json"]["examples"]
    assert shown.keys() == {"inputs", "source", "url", "file"}
    for example in shown.values():
        JobIn.model_validate(example["value"])


def test_openapi_enums_are_named_schemas() -> None:
    named = {name for name, schema in SCHEMAS.items() if "enum" in schema}
    assert {"JobStatus", "ItemStatus", "BatchState", "OperationState", "PolicyMode"} <= named
    for name, schema in SCHEMAS.items():
        assert not [part for part in parts(schema.get("properties")) if "enum" in part], name
    for name, operation in OPERATIONS.items():
        assert not [part for part in parts(operation.get("parameters")) if "enum" in part], name


def parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a document."""
    if isinstance(tree, dict):
        yield tree
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from parts(value)


def test_openapi_parameters_are_never_nullable() -> None:
    for name, operation in OPERATIONS.items():
        for parameter in operation.get("parameters", []):
            assert {"type": "null"} not in parameter["schema"].get("anyOf", []), f"{name} {parameter['name']}"


def test_openapi_references_resolve_to_components() -> None:
    references = [part["$ref"] for part in parts(DOCUMENT) if isinstance(part.get("$ref"), str)]
    assert len(references) > 100
    for reference in references:
        _, group, name = reference.removeprefix("#/").split("/")
        assert name in DOCUMENT["components"][group], reference
