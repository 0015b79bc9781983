"""Sends hints from the outbox to the broker."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain, repeat

from tidemill.core.errors import BrokerUnavailable, InvalidRequest
from tidemill.dispatch import outbox
from tidemill.dispatch.dispatchers import BROKER_SEND_TIMEOUT_S, BrokerDispatcher, compute_reconnect_delay
from tidemill.dispatch.envelope import Envelope, encode_envelope, parse_traceparent
from tidemill.dispatch.outbox import OutboxHint
from tidemill.failpoints import failpoint
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

RELAY_BATCH_SIZE = 1_000  # rows per claim, and messages per block
OUTBOX_CLAIM_S = 30.0  # longer than sending a block takes; afterwards another relay may claim the rows
RELAY_IDLE_S = 1.0
BROKER_REGISTER_INTERVAL_S = 60.0
MAX_HINT_ATTEMPTS = 5
HINT_RETRY_DELAY_S = 1.0


class OutboxRelay:
    """Sends the hints of the outbox, then deletes them. A crash in between sends them twice, which is harmless."""

    name = "relay"

    def __init__(
        self,
        db: Database,
        dispatcher: BrokerDispatcher,
        worker: str,
        scheme: str,
        *,
        retry_delay_s: float = HINT_RETRY_DELAY_S,
    ) -> None:
        self._db = db
        self._dispatcher = dispatcher
        self._worker = worker
        self._scheme = scheme
        self._retry_delay_s = retry_delay_s
        self._failures = 0
        self._registered_at = time.monotonic()

    async def tick(self) -> float:
        if time.monotonic() - self._registered_at > BROKER_REGISTER_INTERVAL_S:
            await self._db.run(outbox.register_broker_and_get_namespace, self._scheme)
            self._registered_at = time.monotonic()
        try:
            sent = await self.send_batch()
        except BrokerUnavailable:
            self._failures += 1
            return compute_reconnect_delay(self._failures)
        self._failures = 0
        return 0 if sent == RELAY_BATCH_SIZE else RELAY_IDLE_S

    async def send_batch(self) -> int:
        """Send up to RELAY_BATCH_SIZE rows; return their number.

        Raises:
            BrokerUnavailable: The broker does not respond; the rows stay in the outbox.
        """
        await self._dispatcher.ensure_send_connection()  # without a broker, claim no hints
        started = time.monotonic()
        claimed = await self._db.run_async_commit(
            outbox.claim_hints, self._worker, limit=RELAY_BATCH_SIZE, seconds=OUTBOX_CLAIM_S
        )
        if not claimed:
            self._dispatcher.clear_send_error()
            return 0
        wanted = [hint for hint in claimed if hint.wanted]
        unwanted = [hint.id for hint in claimed if not hint.wanted]
        if unwanted:
            await self._db.run_async_commit(outbox.remove_hints, self._worker, unwanted)
        rest, sent = list(wanted), list[OutboxHint]()
        for block in split_hints_into_blocks(wanted):
            if time.monotonic() - started > OUTBOX_CLAIM_S - BROKER_SEND_TIMEOUT_S:  # the claim could expire
                await self._release_hints(rest, "The broker is slow")
                break
            sent += await self._publish_block_and_settle_hints(block, rest)
            del rest[: len(block)]
        hints, ms = sum(hint.hints for hint in sent), (time.monotonic() - started) * 1000
        emit("hints.sent", jobs=len(sent), hints=hints, dropped=len(unwanted), ms=ms)
        return len(claimed)

    async def _publish_block_and_settle_hints(
        self, block: Sequence[OutboxHint], rest: Sequence[OutboxHint]
    ) -> list[OutboxHint]:
        """Send a block and delete its hints; postpone or quarantine rejected ones; return those that were sent."""
        failpoint("relay.before_publish")
        rejected = await self._publish_block_or_release_rest(block, rest)
        failpoint("relay.published")
        sent = [hint for hint in block if hint.id not in rejected]
        await self._db.run_async_commit(outbox.remove_hints, self._worker, [hint.id for hint in sent])
        for hint in block:
            if hint.id in rejected:
                await self._postpone_or_quarantine(hint, rejected[hint.id])
        return sent

    async def _publish_block_or_release_rest(
        self, block: Sequence[OutboxHint], rest: Sequence[OutboxHint]
    ) -> dict[int, str]:
        """Send a block; return the rejected hints with the reason. If the broker is lost, release the rest."""
        copies = list(chain.from_iterable(repeat(hint, hint.hints) for hint in block))
        try:
            errors = await self._dispatcher.dispatch([_make_envelope(hint) for hint in copies])
        except BrokerUnavailable as error:
            await self._release_hints(rest, str(error))
            raise
        return {hint.id: error for hint, error in zip(copies, errors, strict=True) if error is not None}

    async def _release_hints(self, hints: Sequence[OutboxHint], why: str) -> None:
        await self._db.run(outbox.release_hint_claims, self._worker, [hint.id for hint in hints], why)

    async def _postpone_or_quarantine(self, hint: OutboxHint, reason: str) -> None:
        if hint.attempts + 1 < MAX_HINT_ATTEMPTS:
            await self._db.run(outbox.postpone_hint, self._worker, hint.id, reason, self._retry_delay_s)
            return
        await self._db.run(outbox.quarantine_hint, self._worker, hint.id, reason, _encode_for_quarantine(hint))
        emit("hint.quarantined", job=hint.job_id, reason=reason, bytes=0)


def split_hints_into_blocks(hints: Sequence[OutboxHint]) -> Iterator[list[OutboxHint]]:
    """Split hints into blocks of about RELAY_BATCH_SIZE messages, which a broker accepts in time."""
    block: list[OutboxHint] = []
    messages = 0
    for hint in hints:
        if block and messages + hint.hints > RELAY_BATCH_SIZE:
            yield block
            block, messages = [], 0
        block.append(hint)
        messages += hint.hints
    if block:
        yield block


def _make_envelope(hint: OutboxHint) -> Envelope:
    trace_id, span_id = parse_traceparent(hint.traceparent)
    attempt, batches = min(hint.attempts + 1, MAX_HINT_ATTEMPTS), tuple(hint.batches)
    kind = hint.kind or ""
    return Envelope(hint.job_id, kind, hint.created_at, attempt, MAX_HINT_ATTEMPTS, batches, trace_id, span_id)


def _encode_for_quarantine(hint: OutboxHint) -> bytes:
    try:
        return encode_envelope(_make_envelope(hint))
    except InvalidRequest:
        return b""
