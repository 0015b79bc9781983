"""From the outbox to the broker."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain, repeat

from tidemill.dispatch.taskiq import SEND_S, BrokerDispatcher, pause_after
from tidemill.domain.envelope import Envelope, encode, tracing
from tidemill.domain.errors import BrokerLost, InvalidRequest
from tidemill.store import outbox
from tidemill.store.database import Database
from tidemill.store.outbox import Hint
from tidemill.telemetry.events import emit

AT_ONCE = 1_000  # rows that are claimed, and messages that are sent
CLAIM_S = 30.0  # longer than a block may take: whoever needs longer is dead, and another relay sends again
IDLE_S = 1.0
REGISTER_EVERY_S = 60.0
MAX_ATTEMPTS = 5
FIRST_DELAY_S = 1.0


class Relay:
    """Sends what the outbox holds, then forgets it. A crash in between sends it twice, which harms nobody."""

    name = "relay"

    def __init__(
        self, db: Database, dispatcher: BrokerDispatcher, worker: str, scheme: str, *, delay: float = FIRST_DELAY_S
    ) -> None:
        self._db = db
        self._dispatcher = dispatcher
        self._worker = worker
        self._scheme = scheme
        self._delay = delay
        self._failures = 0
        self._registered_at = time.monotonic()

    async def tick(self) -> float:
        if time.monotonic() - self._registered_at > REGISTER_EVERY_S:
            await self._db.run(outbox.register, self._scheme)
            self._registered_at = time.monotonic()
        try:
            sent = await self.send()
        except BrokerLost:
            self._failures += 1
            return pause_after(self._failures)
        self._failures = 0
        return 0 if sent == AT_ONCE else IDLE_S

    async def send(self) -> int:
        """One block; how many rows. BrokerLost, and they stay."""
        await self._dispatcher.open()  # nothing is claimed while there is nobody to send it to: it gathers
        started = time.monotonic()
        claimed = await self._db.run(outbox.claim, self._worker, limit=AT_ONCE, seconds=CLAIM_S)
        if not claimed:
            self._dispatcher.nothing_to_send()
            return 0
        wanted = [hint for hint in claimed if hint.wanted]
        unwanted = [hint.id for hint in claimed if not hint.wanted]
        if unwanted:
            await self._db.run(outbox.remove, self._worker, unwanted)
        rest, sent = list(wanted), list[Hint]()
        for block in blocks(wanted):
            if time.monotonic() - started > CLAIM_S - SEND_S:  # the broker is slow: the claim would run out
                await self._give_back(rest, "the broker is slow")
                break
            sent += await self._send_block(block, rest)
            del rest[: len(block)]
        hints, ms = sum(hint.hints for hint in sent), (time.monotonic() - started) * 1000
        emit("hints.sent", jobs=len(sent), hints=hints, dropped=len(unwanted), ms=ms)
        return len(claimed)

    async def _send_block(self, block: Sequence[Hint], rest: Sequence[Hint]) -> list[Hint]:
        """Send these and forget them, whatever becomes of those behind them; which were sent."""
        refused = await self._publish(block, rest)
        sent = [hint for hint in block if hint.id not in refused]
        await self._db.run(outbox.remove, self._worker, [hint.id for hint in sent])
        for hint in block:
            if hint.id in refused:
                await self._set_aside(hint, refused[hint.id])
        return sent

    async def _publish(self, block: Sequence[Hint], rest: Sequence[Hint]) -> dict[int, str]:
        """Those that the broker refused, and why. If it is lost, these and the rest may be taken by others."""
        copies = list(chain.from_iterable(repeat(hint, hint.hints) for hint in block))
        try:
            answers = await self._dispatcher.dispatch([_envelope(hint) for hint in copies])
        except BrokerLost as error:
            await self._give_back(rest, str(error))
            raise
        return {hint.id: answer for hint, answer in zip(copies, answers, strict=True) if answer is not None}

    async def _give_back(self, hints: Sequence[Hint], why: str) -> None:
        await self._db.run(outbox.give_back, self._worker, [hint.id for hint in hints], why)

    async def _set_aside(self, hint: Hint, reason: str) -> None:
        if hint.attempts + 1 < MAX_ATTEMPTS:
            await self._db.run(outbox.postpone, self._worker, hint.id, reason, self._delay)
            return
        await self._db.run(outbox.park, self._worker, hint.id, reason, _shown(hint))
        emit("hint.quarantined", job=hint.job_id, reason=reason, bytes=0)


def blocks(hints: Sequence[Hint]) -> Iterator[list[Hint]]:
    """So that each is of about as many messages as a broker surely takes in time."""
    block: list[Hint] = []
    messages = 0
    for hint in hints:
        if block and messages + hint.hints > AT_ONCE:
            yield block
            block, messages = [], 0
        block.append(hint)
        messages += hint.hints
    if block:
        yield block


def _envelope(hint: Hint) -> Envelope:
    trace_id, span_id = tracing(hint.traceparent)
    attempt, batches = min(hint.attempts + 1, MAX_ATTEMPTS), tuple(hint.batches)
    kind = hint.kind or ""
    return Envelope(hint.job_id, kind, hint.created_at, attempt, MAX_ATTEMPTS, batches, trace_id, span_id)


def _shown(hint: Hint) -> bytes:
    try:
        return encode(_envelope(hint))
    except InvalidRequest:
        return b""
