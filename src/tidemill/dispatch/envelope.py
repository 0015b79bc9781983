"""The format of messages in the broker. They contain only references.

A message is a hint that a job has work. All state is in PostgreSQL, so a message that is lost, late, repeated or out of
order only affects latency.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tidemill.core.errors import InvalidRequest
from tidemill.core.json_input import JsonObject

ENVELOPE_VERSION = "1.0"
ENVELOPE_MAX_BYTES = 4_096
ENVELOPE_MAX_BATCHES = 16
ENVELOPE_PARTS: Mapping[str, tuple[str, ...]] = {
    "header": ("job_id", "type", "version", "created_at", "attempt", "max_attempts"),
    "body": ("job_id", "batch_ids"),
    "tracing": ("trace_id", "span_id"),
}
_TRACEPARENT_PATTERN = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_ENVELOPE_UUID_PATTERN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TRACING_ID_PATTERNS = {"trace_id": re.compile(r"[0-9a-f]{32}"), "span_id": re.compile(r"[0-9a-f]{16}")}


@dataclass(frozen=True, slots=True)
class Envelope:
    """A hint. ``attempt`` counts how often it was sent to the broker; ``batch_ids`` are only for tracing."""

    job_id: UUID
    kind: str
    created_at: datetime
    attempt: int = 1
    max_attempts: int = 1
    batch_ids: tuple[int, ...] = ()
    trace_id: str | None = None
    span_id: str | None = None


def parse_traceparent(traceparent: str | None) -> tuple[str | None, str | None]:
    """Return the trace ID and the span ID of a W3C traceparent; None for both if it is malformed."""
    match = _TRACEPARENT_PATTERN.fullmatch(traceparent or "")
    return (match[1], match[2]) if match else (None, None)


def encode_envelope(envelope: Envelope) -> bytes:
    """Encode a message; raise InvalidRequest if it is too large."""
    job_id = str(envelope.job_id)
    document = {
        "header": {
            "job_id": job_id,
            "type": envelope.kind,
            "version": ENVELOPE_VERSION,
            "created_at": envelope.created_at.isoformat(),
            "attempt": envelope.attempt,
            "max_attempts": envelope.max_attempts,
        },
        "body": {"job_id": job_id, "batch_ids": list(envelope.batch_ids)},
        "tracing": {"trace_id": envelope.trace_id, "span_id": envelope.span_id},
    }
    message = json.dumps(document, separators=(",", ":")).encode()
    if len(message) > ENVELOPE_MAX_BYTES:
        raise InvalidRequest([f"The message has {len(message)} bytes, the maximum is {ENVELOPE_MAX_BYTES}"])
    return message


def decode_envelope(message: bytes) -> Envelope:
    """Decode a message; raise InvalidRequest with all problems if it is invalid."""
    document = _parse_document(message)
    problems = [*_find_structure_problems(document)]
    if problems:
        raise InvalidRequest(problems)
    header, body, traced = (document[part] for part in ENVELOPE_PARTS)
    problems += [*_find_header_problems(header), *_find_body_problems(header, body), *_find_tracing_problems(traced)]
    if problems:
        raise InvalidRequest(problems)
    return Envelope(
        UUID(header["job_id"]),
        header["type"],
        datetime.fromisoformat(header["created_at"]),
        header["attempt"],
        header["max_attempts"],
        tuple(body["batch_ids"]),
        traced["trace_id"],
        traced["span_id"],
    )


def _parse_document(message: bytes) -> JsonObject:
    if len(message) > ENVELOPE_MAX_BYTES:
        raise InvalidRequest([f"The message has {len(message)} bytes, the maximum is {ENVELOPE_MAX_BYTES}"])
    try:
        document = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest([f"The message is not valid JSON: {error}"]) from None
    if not isinstance(document, dict):
        raise InvalidRequest(["The message is not a JSON object"])
    return document


def _find_structure_problems(document: JsonObject) -> list[str]:
    problems = [f"{_truncate_and_escape(part)}: unknown field" for part in document if part not in ENVELOPE_PARTS]
    for part, names in ENVELOPE_PARTS.items():
        fields = document.get(part)
        if not isinstance(fields, dict):
            problems.append(f"{part}: is required" if part not in document else f"{part}: must be an object")
            continue
        problems += [f"{part}.{name}: is required" for name in names if name not in fields]
        problems += [f"{part}.{_truncate_and_escape(name)}: unknown field" for name in fields if name not in names]
    return problems


def _find_header_problems(header: JsonObject) -> list[str]:
    problems = []
    if header["version"] != ENVELOPE_VERSION:
        problems.append(f"header.version: must be {ENVELOPE_VERSION}, not {_truncate_and_escape(header['version'])}")
    if not _matches_pattern(_ENVELOPE_UUID_PATTERN, header["job_id"]):
        problems.append("header.job_id: must be a UUID")
    if not (isinstance(header["type"], str) and header["type"]):
        problems.append("header.type: must be the name of a kind")
    if not _is_zoned_timestamp(header["created_at"]):
        problems.append("header.created_at: must be a timestamp with a time zone")
    attempt, most = header["attempt"], header["max_attempts"]
    if not (_is_positive_bigint(attempt) and _is_positive_bigint(most)):
        problems.append("header.attempt, header.max_attempts: must be positive integers")
    elif attempt > most:
        problems.append(f"header.attempt: must be at most {most}, not {attempt}")
    return problems


def _find_body_problems(header: JsonObject, body: JsonObject) -> list[str]:
    problems = []
    if body["job_id"] != header["job_id"]:
        problems.append("body.job_id: must equal header.job_id")
    batches = body["batch_ids"]
    if not (isinstance(batches, list) and all(map(_is_positive_bigint, batches))):
        problems.append("body.batch_ids: must be a list of batch IDs")
    elif len(batches) > ENVELOPE_MAX_BATCHES:
        problems.append(f"body.batch_ids: must have at most {ENVELOPE_MAX_BATCHES} batches, not {len(batches)}")
    return problems


def _find_tracing_problems(traced: JsonObject) -> list[str]:
    invalid = [
        name
        for name, pattern in _TRACING_ID_PATTERNS.items()
        if traced[name] is not None and not _matches_pattern(pattern, traced[name])
    ]
    return [
        f"tracing.{name}: must be {_TRACING_ID_PATTERNS[name].pattern[-3:-1]} hexadecimal digits" for name in invalid
    ]


def _matches_pattern(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_positive_bigint(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 63


def _is_zoned_timestamp(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _truncate_and_escape(value: object) -> str:
    """Return the first characters of a value, with unpaired surrogates and NUL escaped."""
    return str(value)[:40].encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
