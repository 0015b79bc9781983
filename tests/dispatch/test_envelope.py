"""Tests of the message format: it is strict, and every problem is reported."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.errors import InvalidRequest
from tidemill.dispatch.envelope import (
    ENVELOPE_MAX_BATCHES,
    ENVELOPE_MAX_BYTES,
    Envelope,
    decode_envelope,
    encode_envelope,
    parse_traceparent,
)

JOB = UUID("019a8b7c-1d2e-7f00-8000-123456789abc")
PLAIN = Envelope(JOB, "entity.match", datetime(2024, 12, 24, 12, tzinfo=UTC), 1, 3, (7, 8), "0a" * 16, "b7" * 8)
MOMENTS = st.datetimes(timezones=st.just(timezone(timedelta(hours=2))))


def changed(part: str, **fields: Any) -> bytes:
    document = json.loads(encode_envelope(PLAIN))
    document[part] |= fields
    return json.dumps(document).encode()


def test_envelope_is_encoded_as_header_body_and_tracing() -> None:
    assert json.loads(encode_envelope(PLAIN)) == {
        "header": {
            "job_id": str(JOB),
            "type": "entity.match",
            "version": "1.0",
            "created_at": "2024-12-24T12:00:00+00:00",
            "attempt": 1,
            "max_attempts": 3,
        },
        "body": {"job_id": str(JOB), "batch_ids": [7, 8]},
        "tracing": {"trace_id": "0a" * 16, "span_id": "b7" * 8},
    }


@given(
    st.builds(
        Envelope,
        st.uuids(),
        st.text(min_size=1, max_size=80),
        MOMENTS,
        st.just(2),
        st.integers(2, 9),
        st.lists(st.integers(1, 2**63 - 1), max_size=ENVELOPE_MAX_BATCHES).map(tuple),
    )
)
def test_envelope_survives_encode_and_decode(envelope: Envelope) -> None:
    assert decode_envelope(encode_envelope(envelope)) == envelope


@given(st.binary(max_size=200))
def test_invalid_envelope_bytes_are_rejected_with_problems(message: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_envelope(message)
    assert refused.value.problems


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (changed("header", version="1.1"), "header.version: must be 1.0, not 1.1"),
        (changed("header", job_id="7"), "header.job_id: must be a UUID; body.job_id: must equal header.job_id"),
        (changed("header", type=""), "header.type: must be the name of a kind"),
        (
            changed("header", created_at="2024-12-24T12:00:00"),
            "header.created_at: must be a timestamp with a time zone",
        ),
        (changed("header", created_at=7), "header.created_at: must be a timestamp with a time zone"),
        (changed("header", attempt=True), "header.attempt, header.max_attempts: must be positive integers"),
        (changed("header", attempt=4), "header.attempt: must be at most 3, not 4"),
        (changed("header", priority=1), "header.priority: unknown field"),
        (changed("body", batch_ids=[0]), "body.batch_ids: must be a list of batch IDs"),
        (changed("body", batch_ids=[1] * 17), "body.batch_ids: must have at most 16 batches, not 17"),
        (changed("body", rows=[1]), "body.rows: unknown field"),
        (changed("tracing", trace_id="xyz"), "tracing.trace_id: must be 32 hexadecimal digits"),
        (changed("tracing", span_id=7), "tracing.span_id: must be 16 hexadecimal digits"),
        (b" " * (ENVELOPE_MAX_BYTES + 1), f"The message has {ENVELOPE_MAX_BYTES + 1} bytes, the maximum"),
        (b"[" * 2_000, "The message is not valid JSON"),
        (b"7", "The message is not a JSON object"),
    ],
)
def test_invalid_envelope_field_is_named_in_error(message: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_envelope(message)
    assert str(refused.value).startswith(reason)


def test_envelope_over_size_limit_is_not_encoded() -> None:
    with pytest.raises(InvalidRequest, match="the maximum is"):
        encode_envelope(Envelope(JOB, "k" * ENVELOPE_MAX_BYTES, datetime(2024, 12, 24, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("traceparent", "expected"),
    [
        (f"00-{'0a' * 16}-{'b7' * 8}-01", ("0a" * 16, "b7" * 8)),
        (None, (None, None)),
        ("", (None, None)),
        ("00-xyz-1-01", (None, None)),
    ],
)
def test_trace_ids_are_parsed_from_valid_traceparent_only(traceparent: str | None, expected: tuple[Any, Any]) -> None:
    assert parse_traceparent(traceparent) == expected
