"""Search of all states of the lease protocol, with the invariants checked in each state and step."""

import random
from collections import Counter, deque
from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import NamedTuple

from engine.lease_model.model_state import ModelAction, ModelBatch, ModelState, ModelTally, ModelWorker
from engine.lease_model.protocol import ALL_GUARDS, MAX_ATTEMPTS, OPEN_STATUSES, Protocol

REQUEUING_VERBS = ("cancel_ready", "redrive")  # they change outcomes without a flush
CREATING_VERBS = ("claim", "flush", "flush_again", "split", "redrive")


class InvariantError(AssertionError):
    """An invariant does not hold; the message has the trace that leads there."""


class Edge(NamedTuple):
    source: int
    action: ModelAction
    label: str  # the sort of step, such as "flush list, applied, answer lost"


class Exploration:
    """The explored graph: states, and for each state the step that first reached it.

    The search is breadth-first. With a seed, it continues from a random state instead, so that a search that ends at
    ``max_states`` also has long traces.
    """

    def __init__(
        self,
        initial: ModelState,
        protocol: Protocol | None = None,
        max_states: int = 1_000_000,
        seed: int | None = None,
    ) -> None:
        self.protocol = protocol or Protocol()
        self.initial = initial
        self.states = [initial]
        self.first_steps: list[Edge | None] = [None]
        self.labels: Counter[str] = Counter()
        self.samples: dict[str, list[Edge]] = {}
        self.predecessors: list[list[int]] = [[]]
        self.is_complete = True
        self._explore(max_states, None if seed is None else random.Random(seed))

    def _explore(self, max_states: int, chance: random.Random | None) -> None:
        known: dict[Hashable, int] = {self._identify(self.initial): 0}
        queue = deque([0])
        check_state(self.initial)
        while queue:
            if chance is not None:
                queue.rotate(chance.randrange(min(len(queue), 64)))
            source = queue.popleft() if chance is None else queue.pop()
            before = self.states[source]
            for action in self.protocol.list_actions(before):
                after, answer = self.protocol.apply(before, action)
                edge = Edge(source, action, describe_step(before, action, answer))
                try:
                    check_step(before, action, after)
                    key = self._identify(after)
                    target = known.get(key)
                    if target is None:
                        check_state(after)
                except InvariantError as error:
                    raise InvariantError(f"{error}\n" + "\n".join(map(str, self.trace(edge)))) from None
                self._sample(edge)
                if target is None:
                    if len(self.states) >= max_states:
                        self.is_complete = False
                        continue
                    target = known[key] = len(self.states)
                    self.states.append(after)
                    self.first_steps.append(edge)
                    self.predecessors.append([])
                    queue.append(target)
                self.predecessors[target].append(source)

    def _sample(self, edge: Edge) -> None:
        """Keep steps of each sort, ever rarer, so that the kept ones come from the entire search."""
        self.labels[edge.label] += 1
        count = self.labels[edge.label]
        if count & (count - 1) == 0:
            self.samples.setdefault(edge.label, []).append(edge)

    def trace(self, edge: Edge) -> list[ModelAction]:
        """Return the actions from the initial state up to and including a step."""
        actions = [edge.action]
        while (first := self.first_steps[edge.source]) is not None:
            edge = first
            actions.append(edge.action)
        return actions[::-1]

    def find_stuck_states(self) -> list[ModelState]:
        """Return the states from which no sequence of steps closes the job."""
        can_close = {index for index, state in enumerate(self.states) if state.closed_as is not None}
        queue = deque(can_close)
        while queue:
            for source in self.predecessors[queue.popleft()]:
                if source not in can_close:
                    can_close.add(source)
                    queue.append(source)
        return [state for index, state in enumerate(self.states) if index not in can_close]

    def _identify(self, state: ModelState) -> Hashable:
        """Return the same key for states that differ only in the names of workers, leases and batches.

        The key attaches each worker to the batch whose lease it has, so that no name is needed. Folded batches without
        a worker do nothing more, and unfolded ones only wait for the fold: their counts are enough.
        """
        holders = {worker.lease: worker for worker in state.workers if not worker.is_idle}
        waiting = ModelTally()
        parts: list[Hashable] = []
        for batch in state.batches:
            holder = None if batch.lease is None else holders.pop(batch.lease, None)
            if holder is None and batch.state == "done":
                waiting = waiting if batch.is_folded else waiting.plus(batch.tally)
            else:
                plain = batch._replace(id=0, lease=None, flush_no=batch.flush_no if holder else 0)
                parts.append((plain, holder and holder._replace(batch=0, lease=0)))
        lost = self._identify_stale(holders.values())
        job = state[state._fields.index("intent") : state._fields.index("next_lease")]
        return (state.outcomes, frozenset(parts), lost, job, waiting)

    def _identify_stale(self, workers: Iterable[ModelWorker]) -> Hashable:
        """Count workers without their lease: all their steps are rejected. Without a guard, their memory matters."""
        if self.protocol.guards == ALL_GUARDS:
            return sum(1 for _ in workers)
        return tuple(sorted(repr(worker._replace(lease=None)) for worker in workers))


def describe_step(before: ModelState, action: ModelAction, answer: str) -> str:
    """Name the sort of step: its verb, the shape of its batch, the answer, and whether the answer was lost."""
    index = action.batch if action.worker < 0 or action.verb == "claim" else before.workers[action.worker].batch
    shape = "" if index < 0 else " range" if before.batches[index].seqs is None else " list"
    parts = [f"{action.verb}{shape}", answer, "answer lost" if action.is_answer_lost else ""]
    return ", ".join(part for part in parts if part)


def check_state(state: ModelState) -> None:
    """Check the invariants of the engine in one state."""
    open_batches = [batch for batch in state.batches if batch.is_open]
    counted = state.tally
    for batch in state.batches:
        _check_batch(state, batch)
        if not batch.is_folded:
            counted = counted.plus(batch.tally)
    held = [seq for batch in open_batches for seq in state.list_unsettled(batch)]
    _require(len(held) == len(set(held)), "an item is open in two batches")
    ranges = sorted((b.lo, b.hi) for b in state.batches if b.seqs is None and b.state != "done")
    _require(all(a[1] <= b[0] for a, b in pairwise(ranges)), "live ranges overlap")
    _require(sum(b.open for b in open_batches) + counted.settled == len(state.outcomes), "the sum does not hold")
    leases = [batch.lease for batch in state.batches if batch.lease is not None]
    _require(len(leases) == len(set(leases)), "a lease id is used twice")
    _check_outcomes(state, counted, set(held))
    _require(state.closed_as is None or not open_batches, "a closed job has open work")


def _check_batch(state: ModelState, batch: ModelBatch) -> None:
    _require((batch.open > 0) == batch.is_open, "an open batch has no items, or a closed one has some")
    _require((batch.state == "leased") <= (batch.lease is not None), "a leased batch has no lease")
    _require((batch.state == "ready") <= (batch.lease is None), "a ready batch has a lease")
    if batch.is_open:
        _require(batch.open == len(state.list_unsettled(batch)), "`open` differs from the unsettled items")
        expected = "retry_wait" if batch.retrying else "pending"
        for seq in batch.seqs or ():
            outcome = state.outcomes[seq]
            _require(outcome is not None and outcome.status == expected, "an item of a list has no open outcome")


def _check_outcomes(state: ModelState, counted: ModelTally, held: set[int]) -> None:
    found = Counter(outcome.status for outcome in state.outcomes if outcome is not None)
    for seq, outcome in enumerate(state.outcomes):
        if outcome is not None:
            _require(outcome.attempts <= MAX_ATTEMPTS, "an item has too many attempts")
            _require((outcome.status in OPEN_STATUSES) == (seq in held), "an open outcome is in no list")
    in_ranges = sum(batch.tally.cancelled for batch in state.batches if batch.state == "cancelled")
    rows = ModelTally(found["done"], found["failed"], found["cancelled"] + in_ranges)
    _require(rows == counted, "counters differ from rows")


def check_step(before: ModelState, action: ModelAction, after: ModelState) -> None:
    """Check the invariants of one step: who may change what."""
    actor = before.workers[action.worker].lease if action.worker >= 0 else None
    for old, new in zip(before.batches, after.batches, strict=False):
        if old.state == "leased" and new != old and old.lease != actor:
            is_event = action.verb == "expire" or (action.verb == "sweep" and old.has_expired)
            _require(is_event, "a leased batch was changed without its lease")
    if before.outcomes != after.outcomes:
        _require(action.verb in ("flush", "flush_again", *REQUEUING_VERBS), "an outcome was changed without a flush")
    for was, now in zip(before.outcomes, after.outcomes, strict=True):
        if was is not None and was != now:
            _require(was.status in OPEN_STATUSES or action.verb == "redrive", "a settled item was settled again")
    if len(after.batches) > len(before.batches):
        _require(action.verb in CREATING_VERBS, "a batch was born outside of a flush, a claim, a split or a redrive")
    if before.closed_as is not None and after.closed_as is None:
        _require(action.verb == "redrive", "a closed job was reopened")
    if action.verb == "claim":
        _require(before.intent == "run" and before.batches[action.batch].is_due, "a batch was claimed that must wait")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvariantError(message)
