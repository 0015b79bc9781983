"""The message that goes through a broker: references only, in one strict format.

A message is a hint that a job has work. The truth is in PostgreSQL, so a message that is lost, late, repeated or out of
order costs latency only.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
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
    """``attempt`` counts how often it was sent to the broker; ``batch_ids`` are for tracing only."""

    job_id: UUID
    kind: str
    created_at: datetime
    attempt: int = 1
    max_attempts: int = 1
    batch_ids: tuple[int, ...] = ()
    trace_id: str | None = None
    span_id: str | None = None


def parse_traceparent(traceparent: str | None) -> tuple[str | None, str | None]:
    """The trace and the span of a W3C traceparent; nothing of one that is not well formed."""
    found = _TRACEPARENT_PATTERN.fullmatch(traceparent or "")
    return (found[1], found[2]) if found else (None, None)


def encode_envelope(envelope: Envelope) -> bytes:
    """As it is sent; InvalidRequest if that would be too much."""
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
        raise InvalidRequest([f"a message of {len(message)} bytes is larger than {ENVELOPE_MAX_BYTES}"])
    return message


def decode_envelope(message: bytes) -> Envelope:
    """What was sent; InvalidRequest names every mistake of a message that is not exactly so."""
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
        raise InvalidRequest([f"it has {len(message)} bytes, more than {ENVELOPE_MAX_BYTES}"])
    try:
        document = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest([f"it is not JSON: {error}"]) from None
    if not isinstance(document, dict):
        raise InvalidRequest(["it is not a JSON object"])
    return document


def _find_structure_problems(document: JsonObject) -> list[str]:
    problems = [f"{_make_printable(part)} is not part of a message" for part in document if part not in ENVELOPE_PARTS]
    for part, names in ENVELOPE_PARTS.items():
        found = document.get(part)
        if not isinstance(found, dict):
            problems.append(f"{part} is missing" if part not in document else f"{part} is not an object")
            continue
        problems += [f"{part}.{name} is missing" for name in names if name not in found]
        problems += [f"{part}.{_make_printable(name)} is not part of a message" for name in found if name not in names]
    return problems


def _find_header_problems(header: JsonObject) -> list[str]:
    problems = []
    if header["version"] != ENVELOPE_VERSION:
        problems.append(f"header.version is {_make_printable(header['version'])}, not {ENVELOPE_VERSION}")
    if not _matches_pattern(_ENVELOPE_UUID_PATTERN, header["job_id"]):
        problems.append("header.job_id is not a UUID")
    if not (isinstance(header["type"], str) and header["type"]):
        problems.append("header.type is not a kind of job")
    if not _is_zoned_timestamp(header["created_at"]):
        problems.append("header.created_at is not a time with its zone")
    attempt, most = header["attempt"], header["max_attempts"]
    if not (_is_positive_bigint(attempt) and _is_positive_bigint(most)):
        problems.append("header.attempt and header.max_attempts are not whole numbers from 1 on")
    elif attempt > most:
        problems.append(f"header.attempt is {attempt} of {most}")
    return problems


def _find_body_problems(header: JsonObject, body: JsonObject) -> list[str]:
    problems = []
    if body["job_id"] != header["job_id"]:
        problems.append("body.job_id is not that of the header")
    batches = body["batch_ids"]
    if not (isinstance(batches, list) and all(map(_is_positive_bigint, batches))):
        problems.append("body.batch_ids is not a list of batches")
    elif len(batches) > ENVELOPE_MAX_BATCHES:
        problems.append(f"body.batch_ids has {len(batches)} batches, more than {ENVELOPE_MAX_BATCHES}")
    return problems


def _find_tracing_problems(traced: JsonObject) -> list[str]:
    wrong = [
        name
        for name, form in _TRACING_ID_PATTERNS.items()
        if traced[name] is not None and not _matches_pattern(form, traced[name])
    ]
    return [f"tracing.{name} is not {_TRACING_ID_PATTERNS[name].pattern[-3:-1]} hexadecimal digits" for name in wrong]


def _matches_pattern(form: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _is_positive_bigint(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 63


def _is_zoned_timestamp(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _make_printable(value: object) -> str:
    """In characters that can be written down: JSON may hold halves of pairs."""
    return str(value)[:40].encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


class WakeupReceiver(Protocol):
    """What a worker does when it hears that a job has work."""

    async def wake_after_reconnect(self) -> None:
        """The line is new: nobody knows what was said before."""

    async def wait_for_idle_lane(self) -> None:
        """Wait until somebody here has nothing to do: whoever is busy should leave hints to others."""

    async def wake_for_job(self, job_id: UUID) -> None:
        """A hint: have the job looked at."""

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        """A message that is no hint: keep it for people to see."""


class WakeupDispatcher(Protocol):
    """Tells workers which jobs have work. Its messages are hints: what is lost or repeated changes only latency."""

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        """Send them in one go: for each of them None, or why it was refused. BrokerLost if there is nobody to ask."""

    async def receive_wakeups(self, handler: WakeupReceiver) -> None:
        """Hand on what others dispatch, until cancelled. A line that breaks is made again."""

    async def close(self) -> None: ...
