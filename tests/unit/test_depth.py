"""How deep JSON may be nested."""

import pytest

from tidemill.domain.depth import MAX_DEPTH, is_too_deep


@pytest.mark.parametrize(
    ("data", "too_deep"),
    [
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, False),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), True),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), True),
        (b"[" + b"[]," * 1_000 + b"1]", False),
        (b'"' + b"[" * 1_000 + b'"', False),
        (b'["\\"' + b"[" * 1_000 + b'"]', False),
    ],
)
def test_depth_is_counted_outside_of_strings(data: bytes, *, too_deep: bool) -> None:
    assert is_too_deep(data) is too_deep
