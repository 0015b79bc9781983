"""States of the model: one job with its batches and outcomes, and what each worker remembers."""

from typing import NamedTuple

OPEN_STATES = ("ready", "leased")


class ModelTally(NamedTuple):
    done: int = 0
    failed: int = 0
    cancelled: int = 0

    def plus(self, other: "ModelTally", sign: int = 1) -> "ModelTally":
        return ModelTally(
            self.done + sign * other.done, self.failed + sign * other.failed, self.cancelled + sign * other.cancelled
        )

    @property
    def settled(self) -> int:
        return self.done + self.failed + self.cancelled


class ModelBatch(NamedTuple):
    id: int
    lo: int
    hi: int
    open: int
    seqs: tuple[int, ...] | None = None
    state: str = "ready"
    tally: ModelTally = ModelTally()
    is_folded: bool = False
    is_due: bool = True
    lease: int | None = None
    has_expired: bool = False
    flush_no: int = 0
    losses: int = 0
    isolated: bool = False
    retrying: bool = False
    half: bool = False

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


class ModelOutcome(NamedTuple):
    status: str
    attempts: int


class ModelFlush(NamedTuple):
    seqs: tuple[int, ...]
    status: str


class ModelWorker(NamedTuple):
    """A worker's memory: nothing, a claim without an answer, or a lease with the items that it still runs."""

    batch: int = -1
    lease: int | None = None
    flush_no: int = 0
    holds: tuple[int, ...] = ()
    unanswered: ModelFlush | None = None
    is_claiming: bool = False

    @property
    def is_idle(self) -> bool:
        return self.lease is None


class ModelAction(NamedTuple):
    verb: str
    worker: int = -1
    batch: int = -1
    item_count: int = 0
    flush: ModelFlush | None = None
    is_answer_lost: bool = False


class ModelState(NamedTuple):
    outcomes: tuple[ModelOutcome | None, ...]
    batches: tuple[ModelBatch, ...]
    workers: tuple[ModelWorker, ...]
    intent: str = "run"
    closed_as: str | None = None
    tally: ModelTally = ModelTally()
    faults_left: int = 0
    redrives_left: int = 0
    next_lease: int = 0

    def with_batch(self, *changed: ModelBatch) -> "ModelState":
        batches = list(self.batches)
        for batch in changed:
            batches[batch.id : batch.id + 1] = [batch]
        return self._replace(batches=tuple(batches))

    def with_worker(self, index: int, worker: ModelWorker) -> "ModelState":
        return self._replace(workers=(*self.workers[:index], worker, *self.workers[index + 1 :]))

    def find_lease(self, lease: int | None) -> ModelBatch | None:
        return next((batch for batch in self.batches if batch.lease == lease and batch.state == "leased"), None)

    def list_unsettled(self, batch: ModelBatch) -> tuple[int, ...]:
        if batch.seqs is not None:
            return batch.seqs
        return tuple(seq for seq in range(batch.lo, batch.hi) if self.outcomes[seq] is None)


def make_initial_state(ranges: tuple[int, ...], workers: int, faults: int, redrives: int) -> ModelState:
    """Return a job with one ready range per size."""
    batches: list[ModelBatch] = []
    for size in ranges:
        lo = batches[-1].hi if batches else 0
        batches.append(ModelBatch(len(batches), lo, lo + size, size))
    return ModelState(
        (None,) * sum(ranges), tuple(batches), (ModelWorker(),) * workers, "run", None, ModelTally(), faults, redrives
    )
