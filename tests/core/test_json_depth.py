"""Tests of the limit on JSON nesting."""

import pytest

from tidemill.core.json_input import MAX_JSON_DEPTH, is_json_too_deep


@pytest.mark.parametrize(
    ("data", "too_deep"),
    [
        (b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH, False),
        (b"[" * (MAX_JSON_DEPTH + 1) + b"]" * (MAX_JSON_DEPTH + 1), True),
        (b'{"a":' * (MAX_JSON_DEPTH + 1) + b"1" + b"}" * (MAX_JSON_DEPTH + 1), True),
        (b"[" + b"[]," * 1_000 + b"1]", False),
        (b'"' + b"[" * 1_000 + b'"', False),
        (b'["\\"' + b"[" * 1_000 + b'"]', False),
    ],
)
def test_json_depth_ignores_brackets_inside_strings(data: bytes, *, too_deep: bool) -> None:
    assert is_json_too_deep(data) is too_deep
