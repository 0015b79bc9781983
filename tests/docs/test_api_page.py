"""The page about the HTTP API says what the OpenAPI document says."""

import re

from docs.test_docs import DOCS, rows
from support.openapi_document import APP, DOCUMENT
from tidemill.rest.auth import Permission

OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def test_api_page_lists_every_operation_with_its_permission() -> None:
    table = {
        route: permission for route, _, permission in rows("reference/api.md", "## Operations and permissions")[1:]
    }
    assert table == {route: operation["x-permission"] for route, operation in OPERATIONS.items()}
    assert set(table.values()) == set(Permission)


def test_api_page_explains_every_error_status_of_operations() -> None:
    told = {int(status) for status, _ in rows("reference/api.md", "## Errors")[1:]}
    listed = {int(status) for one in OPERATIONS.values() for status in one["responses"] if int(status) >= 400}
    assert told == listed


def test_api_page_examples_use_existing_paths() -> None:
    paths = [re.sub(r"\\{\w+\\}", r"[^/]+", re.escape(path)) for path in DOCUMENT["paths"]]
    known = re.compile("|".join([*paths, re.escape(str(APP.openapi_url))]))
    for page in ("reference/api.md", "reference/identity.md"):
        said = re.findall(r"\$TIDEMILL(/[^\s\"?]*)", (DOCS / page).read_text())
        assert len(said) > 5, page
        for path in said:
            assert known.fullmatch(path), path
