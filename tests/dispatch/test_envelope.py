"""The message that goes through a broker: one strict form, and every mistake is named."""

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
        (changed("header", version="1.1"), "header.version is 1.1, not 1.0"),
        (changed("header", job_id="7"), "header.job_id is not a UUID; body.job_id is not that of the header"),
        (changed("header", type=""), "header.type is not a kind of job"),
        (changed("header", created_at="2024-12-24T12:00:00"), "header.created_at is not a time with its zone"),
        (changed("header", created_at=7), "header.created_at is not a time with its zone"),
        (changed("header", attempt=True), "header.attempt and header.max_attempts are not whole numbers from 1 on"),
        (changed("header", attempt=4), "header.attempt is 4 of 3"),
        (changed("header", priority=1), "header.priority is not part of a message"),
        (changed("body", batch_ids=[0]), "body.batch_ids is not a list of batches"),
        (changed("body", batch_ids=[1] * 17), "body.batch_ids has 17 batches, more than 16"),
        (changed("body", rows=[1]), "body.rows is not part of a message"),
        (changed("tracing", trace_id="xyz"), "tracing.trace_id is not 32 hexadecimal digits"),
        (changed("tracing", span_id=7), "tracing.span_id is not 16 hexadecimal digits"),
        (b" " * (ENVELOPE_MAX_BYTES + 1), f"it has {ENVELOPE_MAX_BYTES + 1} bytes, more than {ENVELOPE_MAX_BYTES}"),
        (b"[" * 2_000, "it is not JSON"),
        (b"7", "it is not a JSON object"),
    ],
)
def test_invalid_envelope_field_is_named_in_error(message: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_envelope(message)
    assert str(refused.value).startswith(reason)


def test_envelope_over_size_limit_is_not_encoded() -> None:
    with pytest.raises(InvalidRequest, match="larger than"):
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
