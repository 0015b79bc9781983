"""Tests of the limit on JSON nesting."""

import pytest

from support.counted_work import measure_peak_bytes
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


@pytest.mark.parametrize("text", [b"x" * (1 << 20), b"\\n" * (1 << 19)], ids=["plain", "escaped"])
def test_json_depth_check_of_long_strings_needs_no_more_memory(text: bytes) -> None:
    data = b"[" + b"[]," * MAX_JSON_DEPTH + b'"' + text + b'"]'
    assert measure_peak_bytes(lambda: is_json_too_deep(data)) < 2 * len(data)
