"""A model of the lease protocol: one job, its batches, and workers that remember leases they may have lost.

Each action is one transaction of the store. A transaction is atomic here: row locks and the fence make it atomic in
PostgreSQL, which the tests of concurrent transactions check. The model chooses any due batch, where the store chooses
the oldest one, and an expired lease is a flag, because the model has no clock.
"""

from collections.abc import Iterator

from engine.lease_model.model_state import (
    ModelAction,
    ModelBatch,
    ModelFlush,
    ModelOutcome,
    ModelState,
    ModelTally,
    ModelWorker,
)

MAX_ATTEMPTS = 2
ISOLATE_AFTER_LOSSES = 3
EVERYTHING = 1_000  # a claim of at most this number of items takes an entire batch
OPEN_STATUSES = ("pending", "retry_wait")
ALL_GUARDS = frozenset({"lease_id", "flush_no", "leased", "expired", "drained", "intent", "due"})


class Protocol:
    """The possible actions of a state and their effects. A test removes a guard to show that the search notices."""

    def __init__(self, guards: frozenset[str] = ALL_GUARDS) -> None:
        self.guards = guards

    def list_actions(self, state: ModelState) -> Iterator[ModelAction]:
        yield from self._list_job_actions(state)
        may_claim = state.closed_as is None and (state.intent == "run" or "intent" not in self.guards)
        idle = next((index for index, worker in enumerate(state.workers) if worker.is_idle), None)
        if idle is not None and may_claim:
            for batch in state.batches:
                if batch.state == "ready" and (batch.is_due or "due" not in self.guards):
                    for count in (1, EVERYTHING) if batch.open > 1 or batch.seqs else (EVERYTHING,):
                        yield from _with_lost_answer(state, ModelAction("claim", idle, batch.id, count))
        for index, worker in enumerate(state.workers):
            if not worker.is_idle:
                yield from self._list_worker_actions(state, index, worker)

    def _list_job_actions(self, state: ModelState) -> Iterator[ModelAction]:
        if state.closed_as is None:
            yield from self._list_actions_of_open_job(state)
        may_redrive = state.redrives_left and (state.closed_as is not None or state.intent != "cancel")
        if may_redrive and (_find_statuses(state, ("failed", "cancelled")) or _find_cancelled_ranges(state)):
            yield ModelAction("redrive")
        if any(not batch.is_open and not batch.is_folded for batch in state.batches):
            yield ModelAction("fold")
        if any(batch.state == "ready" and not batch.is_due for batch in state.batches):
            yield ModelAction("make_due")
        if any(self._is_reclaimable(batch) for batch in state.batches):
            yield ModelAction("sweep")
        for batch in state.batches:
            may_expire = state.faults_left or not _is_held(state, batch.id)
            if batch.state == "leased" and not batch.has_expired and may_expire:
                yield ModelAction("expire", batch=batch.id)

    def _list_actions_of_open_job(self, state: ModelState) -> Iterator[ModelAction]:
        if state.intent != "cancel":
            yield ModelAction("resume" if state.intent == "pause" else "pause")
            yield ModelAction("cancel")
        elif any(batch.state == "ready" for batch in state.batches):
            yield ModelAction("cancel_ready")
        if "drained" not in self.guards or not any(batch.is_open for batch in state.batches):
            yield ModelAction("finalize")

    def _list_worker_actions(self, state: ModelState, index: int, worker: ModelWorker) -> Iterator[ModelAction]:
        if state.faults_left:
            yield ModelAction("crash", index)
        if worker.is_claiming:
            yield ModelAction("claim_again", index)
            return
        if worker.unanswered is not None:
            yield ModelAction("flush_again", index, flush=worker.unanswered)
            return
        for seqs in {worker.holds[:1], worker.holds}:
            for status in ("done", "failed", "retry_wait"):
                if status == "retry_wait" and any(_count_attempts(state, seq) + 1 >= MAX_ATTEMPTS for seq in seqs):
                    continue
                yield from _with_lost_answer(state, ModelAction("flush", index, flush=ModelFlush(seqs, status)))
        yield from _with_lost_answer(state, ModelAction("release", index))
        if len(worker.holds) > 1:
            yield from _with_lost_answer(state, ModelAction("split", index))
        held = state.find_lease(worker.lease)
        if held is not None and held.has_expired:
            yield ModelAction("heartbeat", index)

    def apply(self, state: ModelState, action: ModelAction) -> tuple[ModelState, str]:
        """Return the next state, and the answer of the store."""
        after, answer = getattr(self, f"_{action.verb}")(state, action)
        if (
            action.is_answer_lost
            or action.verb == "crash"
            or (action.verb == "expire" and _is_held(state, action.batch))
        ):
            after = after._replace(faults_left=after.faults_left - 1)
        return after, answer

    def _claim(self, state: ModelState, action: ModelAction) -> tuple[ModelState, str]:
        ready, lease = state.batches[action.batch], state.next_lease
        count = 1 if ready.isolated else action.item_count
        part, how = ready, "whole"
        if ready.seqs is not None and ready.open > count:
            taken, rest = ready.seqs[:count], ready.seqs[count:]
            part, how = _with_seqs(ready, taken)._replace(id=len(state.batches), tally=ModelTally()), "slice"
            state = state.with_batch(ready._replace(seqs=rest, lo=rest[0], open=len(rest)))
        elif ready.seqs is not None and not ready.isolated and not ready.half:
            state, part = _merge_lists(state, ready, count)
            how = "merge" if part.open > ready.open else "whole"
        elif ready.seqs is None and ready.open == ready.hi - ready.lo > 1.5 * count:
            carved = ready._replace(id=len(state.batches), hi=ready.lo + count, open=count, tally=ModelTally())
            part, how = carved, "carve"
            state = state.with_batch(ready._replace(lo=ready.lo + count, open=ready.open - count))
        leased = part._replace(state="leased", lease=lease, has_expired=False, flush_no=0)
        state = state._replace(next_lease=lease + 1).with_batch(leased)
        if action.is_answer_lost:
            return state.with_worker(action.worker, ModelWorker(leased.id, lease, is_claiming=True)), how
        return state.with_worker(action.worker, ModelWorker(leased.id, lease, 0, state.list_unsettled(leased))), how

    def _claim_again(self, state: ModelState, action: ModelAction) -> tuple[ModelState, str]:
        worker = state.workers[action.worker]
        held = state.find_lease(worker.lease)
        if held is None:
            return state.with_worker(action.worker, ModelWorker()), "lost"
        adopted = ModelWorker(held.id, worker.lease, held.flush_no, state.list_unsettled(held))
        return state.with_worker(action.worker, adopted), "adopted"

    def _passes_fence(self, batch: ModelBatch, worker: ModelWorker) -> bool:
        return (
            ("lease_id" not in self.guards or batch.lease == worker.lease)
            and ("flush_no" not in self.guards or batch.flush_no == worker.flush_no)
            and ("leased" not in self.guards or batch.state == "leased")
        )

    def _flush(self, state: ModelState, action: ModelAction) -> tuple[ModelState, str]:
        worker, flush = state.workers[action.worker], action.flush
        assert flush is not None
        batch = state.batches[worker.batch]
        if not self._passes_fence(batch, worker):
            is_same = batch.lease == worker.lease and batch.flush_no == worker.flush_no + 1
            if not is_same or batch.state not in ("leased", "done"):
                return state.with_worker(action.worker, ModelWorker()), "stale"
            return self._advance(state, action.worker, flush), "already"
        count = len(flush.seqs)
        rest = None if batch.seqs is None else tuple(seq for seq in batch.seqs if seq not in flush.seqs)
        counted = ModelTally() if flush.status == "retry_wait" else ModelTally(**{flush.status: count})
        written = batch._replace(
            open=batch.open - count,
            seqs=rest,
            tally=batch.tally.plus(counted),
            flush_no=batch.flush_no + 1,
            losses=0,
            has_expired=False,
            state="done" if batch.open == count else batch.state,
        )
        outcomes = list(state.outcomes)
        for seq in flush.seqs:
            outcomes[seq] = ModelOutcome(flush.status, _count_attempts(state, seq) + 1)
        after = state._replace(outcomes=tuple(outcomes)).with_batch(written)
        if flush.status == "retry_wait":
            after = _add_list(after, flush.seqs, is_due=False, retrying=True)
        if action.is_answer_lost:
            return after.with_worker(action.worker, worker._replace(unanswered=flush)), "applied"
        return self._advance(after, action.worker, flush), "applied"

    _flush_again = _flush

    def _advance(self, state: ModelState, index: int, flush: ModelFlush) -> ModelState:
        worker = state.workers[index]
        holds = tuple(seq for seq in worker.holds if seq not in flush.seqs)
        advanced = worker._replace(flush_no=worker.flush_no + 1, holds=holds, unanswered=None)
        return state.with_worker(index, advanced if holds else ModelWorker())

    def _release(self, state: ModelState, action: ModelAction) -> tuple[ModelState, str]:
        worker = state.workers[action.worker]
        batch = state.batches[worker.batch]
        if not self._passes_fence(batch, worker):
            return state.with_worker(action.worker, ModelWorker()), "stale"
        return self._forget(state.with_batch(_make_ready(batch)), action), "applied"

    def _split(self, state: ModelState, action: ModelAction) -> tuple[ModelState, str]:
        worker = state.workers[action.worker]
        batch = state.batches[worker.batch]
        if not self._passes_fence(batch, worker):
            return state.with_worker(action.worker, ModelWorker()), "stale"
        closed = batch._replace(state="done", open=0, seqs=None if batch.seqs is None else (), has_expired=False)
        state = state.with_batch(closed)
        parent = ModelBatch(-1, batch.lo, batch.hi, batch.open, isolated=batch.isolated, retrying=batch.retrying)
        for seqs, lo, hi in halve(batch, worker.holds):
            if seqs is not None:
                part = _with_seqs(parent, seqs)._replace(id=len(state.batches), half=True)
            else:
                part = parent._replace(id=len(state.batches), lo=lo, hi=hi)
                part = part._replace(open=len(state.list_unsettled(part)))
            if part.open:
                state = state.with_batch(part)
        return self._forget(state, action), "applied"

    def _forget(self, state: ModelState, action: ModelAction) -> ModelState:
        """End the worker's lease; without an answer, the worker still believes that it has the lease."""
        return state if action.is_answer_lost else state.with_worker(action.worker, ModelWorker())

    def _crash(self, state: ModelState, action: ModelAction) -> tuple[ModelState, str]:
        return state.with_worker(action.worker, ModelWorker()), ""

    def _expire(self, state: ModelState, action: ModelAction) -> tuple[ModelState, str]:
        return state.with_batch(state.batches[action.batch]._replace(has_expired=True)), ""

    def _heartbeat(self, state: ModelState, action: ModelAction) -> tuple[ModelState, str]:
        held = state.find_lease(state.workers[action.worker].lease)
        assert held is not None
        return state.with_batch(held._replace(has_expired=False)), ""

    def _is_reclaimable(self, batch: ModelBatch) -> bool:
        return batch.state == "leased" and (batch.has_expired or "expired" not in self.guards)

    def _sweep(self, state: ModelState, _: ModelAction) -> tuple[ModelState, str]:
        swept = [_make_ready(batch, losses=1) for batch in state.batches if self._is_reclaimable(batch)]
        return state.with_batch(*swept), ""

    def _make_due(self, state: ModelState, _: ModelAction) -> tuple[ModelState, str]:
        return state.with_batch(*(batch._replace(is_due=True) for batch in state.batches if batch.state == "ready")), ""

    def _pause(self, state: ModelState, _: ModelAction) -> tuple[ModelState, str]:
        return state._replace(intent="pause"), ""

    def _resume(self, state: ModelState, _: ModelAction) -> tuple[ModelState, str]:
        return state._replace(intent="run"), ""

    def _cancel(self, state: ModelState, _: ModelAction) -> tuple[ModelState, str]:
        return state._replace(intent="cancel"), ""

    def _cancel_ready(self, state: ModelState, _: ModelAction) -> tuple[ModelState, str]:
        outcomes = list(state.outcomes)
        cancelled = []
        for batch in state.batches:
            if batch.state == "ready":
                for seq in batch.seqs or ():
                    outcomes[seq] = ModelOutcome("cancelled", _count_attempts(state, seq))
                tally = batch.tally.plus(ModelTally(cancelled=batch.open))
                closed = batch._replace(open=0, tally=tally, state="cancelled")
                cancelled.append(closed if batch.seqs is None else closed._replace(state="done", seqs=()))
        return state._replace(outcomes=tuple(outcomes)).with_batch(*cancelled), ""

    def _finalize(self, state: ModelState, _: ModelAction) -> tuple[ModelState, str]:
        state = _fold_closed(state)
        closed_as = "completed_with_errors" if state.tally.failed else "completed"
        if state.intent == "cancel":
            closed_as = "cancelled"
        return state._replace(closed_as=closed_as), closed_as

    def _fold(self, state: ModelState, _: ModelAction) -> tuple[ModelState, str]:
        return _fold_closed(state), ""

    def _redrive(self, state: ModelState, _: ModelAction) -> tuple[ModelState, str]:
        """Requeue failed and cancelled items: those with an outcome in a list, cancelled ranges as they are."""
        state = _fold_closed(state)
        seqs = _find_statuses(state, ("failed", "cancelled"))
        outcomes = list(state.outcomes)
        taken = ModelTally()
        for seq in seqs:
            taken = taken.plus(ModelTally(**{_get_status(state, seq): 1}))
            outcomes[seq] = ModelOutcome("pending", 0)
        state = state._replace(outcomes=tuple(outcomes), tally=state.tally.plus(taken, -1))
        if seqs:
            state = _add_list(state, seqs, is_due=True, retrying=False)
        revived = []
        for batch in _find_cancelled_ranges(state):
            state = state._replace(tally=state.tally.plus(batch.tally, -1))
            tally = batch.tally._replace(cancelled=0)
            ready = batch._replace(state="ready", open=batch.tally.cancelled, tally=tally, is_folded=False)
            revived.append(ready._replace(is_due=True, lease=None))
        intent = "pause" if state.intent == "pause" else "run"
        state = state._replace(intent=intent, closed_as=None, redrives_left=state.redrives_left - 1)
        return state.with_batch(*revived), ""


def _with_lost_answer(state: ModelState, action: ModelAction) -> Iterator[ModelAction]:
    yield action
    if state.faults_left:
        yield action._replace(is_answer_lost=True)


def _is_held(state: ModelState, batch: int) -> bool:
    """Whether a worker remembers the lease. Its expiry is a fault; the lease of a crashed worker always expires."""
    return any(worker.lease == state.batches[batch].lease for worker in state.workers)


def _get_status(state: ModelState, seq: int) -> str:
    outcome = state.outcomes[seq]
    return "" if outcome is None else outcome.status


def _count_attempts(state: ModelState, seq: int) -> int:
    outcome = state.outcomes[seq]
    return 0 if outcome is None else outcome.attempts


def _find_statuses(state: ModelState, statuses: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(seq for seq, outcome in enumerate(state.outcomes) if outcome and outcome.status in statuses)


def _find_cancelled_ranges(state: ModelState) -> list[ModelBatch]:
    return [batch for batch in state.batches if batch.state == "cancelled"]


def _with_seqs(batch: ModelBatch, seqs: tuple[int, ...]) -> ModelBatch:
    return batch._replace(seqs=seqs, lo=seqs[0], hi=seqs[-1] + 1, open=len(seqs))


def _make_ready(batch: ModelBatch, losses: int = 0) -> ModelBatch:
    lost = batch.losses + losses
    isolated = batch.isolated or lost >= ISOLATE_AFTER_LOSSES
    ready = batch._replace(state="ready", lease=None, has_expired=False, is_due=True)
    return ready._replace(losses=lost, isolated=isolated)


def _merge_lists(state: ModelState, ready: ModelBatch, count: int) -> tuple[ModelState, ModelBatch]:
    """Absorb all other due lists, or none if the claim is for one item."""
    seqs = ready.seqs or ()
    for other in state.batches:
        may_merge = other.state == "ready" and other.is_due and other.seqs and not other.isolated and not other.half
        is_alike = other.id != ready.id and other.retrying == ready.retrying
        if may_merge and is_alike and len(seqs) + other.open <= count:
            seqs += other.seqs or ()
            state = state.with_batch(other._replace(state="done", open=0, seqs=()))
    return state, _with_seqs(ready, tuple(sorted(seqs)))


def _add_list(state: ModelState, seqs: tuple[int, ...], *, is_due: bool, retrying: bool) -> ModelState:
    new = ModelBatch(len(state.batches), seqs[0], seqs[-1] + 1, len(seqs), seqs, is_due=is_due, retrying=retrying)
    return state.with_batch(new)


def _fold_closed(state: ModelState) -> ModelState:
    closed = [batch for batch in state.batches if not batch.is_open and not batch.is_folded]
    for batch in closed:
        state = state._replace(tally=state.tally.plus(batch.tally))
    return state.with_batch(*(batch._replace(is_folded=True) for batch in closed))


def halve(batch: ModelBatch, holds: tuple[int, ...]) -> list[tuple[tuple[int, ...] | None, int, int]]:
    """Return the two halves of a batch: of a list its items, of a range its bounds."""
    if batch.seqs is not None:
        middle = len(holds) // 2
        return [(part, part[0], part[-1] + 1) for part in (holds[:middle], holds[middle:]) if part]
    middle = (batch.lo + batch.hi) // 2
    return [(None, lo, hi) for lo, hi in ((batch.lo, middle), (middle, batch.hi)) if lo < hi]
