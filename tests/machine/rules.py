"""What may happen to batches, as rules that draw who does what to which."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from machine.model import MAX_ATTEMPTS, HandModel, ItemModel, JobModel
from machine.wholes import SourceVerbs
from machine.world import World
from tidemill.domain.batch import cut_halves, cut_suspects
from tidemill.domain.decide import Verdict
from tidemill.domain.status import ItemStatus

WORKERS = st.sampled_from(["w1", "w2", "w3"])
SIZES = st.sampled_from([1, 7, 13, 1_000])
CODES = ["odd", "even"]
ANSWERS = ("done", "done", "failed", "not_found", "skipped", "retry_wait")
DELAYS = (0.0, 60.0, 3_600.0)
POLICIES: list[dict[str, object]] = [{}, {}, {"mode": "fail_fast"}, {"mode": "tolerate", "max_failed": 2}]
MOST_JOBS = 4

has_jobs = precondition(lambda machine: bool(machine.model.jobs))
has_hands = precondition(lambda machine: bool(machine.model.hands))
has_zombies = precondition(lambda machine: bool(machine.model.zombies))
has_readers = precondition(lambda machine: bool(machine.model.readers))


def verdict_on(item: ItemModel, word: str, code: str, delay: float) -> Verdict:
    """An answer that stays within the attempts an item has."""
    attempts = item.attempts + 1
    status = ItemStatus(word)
    if status is ItemStatus.RETRY_WAIT and attempts >= MAX_ATTEMPTS:
        status = ItemStatus.FAILED
    if status is ItemStatus.DONE:
        return Verdict(item.seq, status, attempts, 1, b"{}")
    error = b'{"code": "%s", "reason": "because", "retryable": true}' % code.encode()
    waits = delay if status is ItemStatus.RETRY_WAIT else None
    return Verdict(item.seq, status, attempts, 1, None, None, error, code, waits)


class BatchRules(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.verbs = SourceVerbs(world)
        self.model = self.verbs.model
        self.do = world.do
        self.do(world.empty())

    def a_job(self, data: st.DataObject) -> JobModel:
        jobs = list(self.model.jobs.values())  # in order of submission: ids are not the same from run to run
        return jobs[data.draw(st.integers(0, len(jobs) - 1), label="job")]

    def a_hand(self, data: st.DataObject, hands: list[HandModel]) -> HandModel:
        return hands[data.draw(st.integers(0, len(hands) - 1), label="lease")]

    def some(self, data: st.DataObject, seqs: list[int], least: int = 0) -> list[int]:
        return sorted(data.draw(st.sets(st.sampled_from(seqs), min_size=least), label="seqs")) if seqs else []

    def answers(self, data: st.DataObject, job: JobModel, seqs: list[int]) -> list[Verdict]:
        """One answer for most of them, and a few exceptions."""
        draw = data.draw
        mostly = draw(st.sampled_from(ANSWERS), label="mostly")
        others = draw(st.dictionaries(st.sampled_from(seqs), st.sampled_from(ANSWERS), max_size=6), label="others")
        delay = draw(st.sampled_from(DELAYS), label="delay")
        return [
            verdict_on(
                job.items[seq], others.get(seq, mostly), CODES[seq % 2], DELAYS[seq % 3] if seq in others else delay
            )
            for seq in seqs
        ]

    @initialize(n=st.integers(0, 60), sparse=st.booleans(), size=SIZES, policy=st.sampled_from(POLICIES))
    def begin(self, n: int, sparse: bool, size: int, policy: dict[str, object]) -> None:
        self.do(self.verbs.submit(n, sparse=sparse, size=size, policy=policy, priority=0))

    @precondition(lambda self: len(self.model.jobs) < MOST_JOBS)
    @rule(
        n=st.none() | st.integers(0, 60),
        sparse=st.booleans(),
        size=SIZES,
        policy=st.sampled_from(POLICIES),
        priority=st.integers(-1, 1),
    )
    def submit(self, n: int | None, sparse: bool, size: int, policy: dict[str, object], priority: int) -> None:
        self.do(self.verbs.submit(n, sparse=sparse, size=size, policy=policy, priority=priority))

    @has_jobs
    @rule(data=st.data(), wanted=st.sampled_from([1, 3, 7, 20, 1_000]), worker=WORKERS)
    def claim(self, data: st.DataObject, wanted: int, worker: str) -> None:
        self.do(self.verbs.claim(self.a_job(data).id, wanted, worker))

    @has_jobs
    @rule(data=st.data(), wanted=st.sampled_from([3, 7, 20]), worker=WORKERS)
    def claim_and_flush(self, data: st.DataObject, wanted: int, worker: str) -> None:
        hand = self.do(self.verbs.claim(self.a_job(data).id, wanted, worker))
        if hand is not None:
            job = self.model.jobs[hand.lease.job_id]
            self.do(self.verbs.flush(hand, self.answers(data, job, sorted(hand.holds))))

    @has_hands
    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        self.do(self.verbs.claim_again(self.a_hand(data, self.model.hands)))

    @has_hands
    @rule(data=st.data(), part=st.booleans())
    def flush(self, data: st.DataObject, part: bool) -> None:
        hand = self.a_hand(data, self.model.hands)
        job = self.model.jobs[hand.lease.job_id]
        seqs = sorted(hand.holds)
        if part and not job.sparse:  # sparse batches are flushed whole or not at all
            seqs = self.some(data, seqs, least=1)
        self.do(self.verbs.flush(hand, self.answers(data, job, seqs)))

    @precondition(lambda self: any(h.last for h in self.model.hands + self.model.zombies))
    @rule(data=st.data())
    def flush_again(self, data: st.DataObject) -> None:
        said = [hand for hand in self.model.hands + self.model.zombies if hand.last]
        self.do(self.verbs.flush_again(self.a_hand(data, said)))

    @has_zombies
    @rule(data=st.data(), word=st.sampled_from(ANSWERS))
    def flush_late(self, data: st.DataObject, word: str) -> None:
        hand = self.a_hand(data, self.model.zombies)
        seqs = sorted(hand.holds) or [hand.lease.lo]
        self.do(self.verbs.flush_late(hand, [verdict_on(ItemModel(seq), word, "late", 0.0) for seq in seqs]))

    @has_hands
    @rule(data=st.data(), for_the_dead=st.booleans(), losses=st.integers(0, 1))
    def release(self, data: st.DataObject, for_the_dead: bool, losses: int) -> None:
        hand = self.a_hand(data, self.model.hands)
        self.do(self.verbs.release(hand, for_the_dead=for_the_dead, losses=losses))

    @has_hands
    @rule(data=st.data(), for_the_dead=st.booleans(), crashes=st.integers(0, 2))
    def split_off_suspects(self, data: st.DataObject, for_the_dead: bool, crashes: int) -> None:
        hand = self.a_hand(data, self.model.hands)
        suspects = self.some(data, sorted(hand.holds), least=1)
        pieces = cut_suspects(self.do(self.verbs.look_up(hand)), suspects)
        self.do(self.verbs.split(hand, pieces, for_the_dead=for_the_dead, crashes=crashes))

    @has_hands
    @rule(data=st.data())
    def split_in_halves(self, data: st.DataObject) -> None:
        hand = self.a_hand(data, self.model.hands)
        pieces = cut_halves(self.do(self.verbs.look_up(hand)))
        self.do(self.verbs.split(hand, pieces, for_the_dead=False, crashes=0))

    @has_hands
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        self.do(self.verbs.expire(self.a_hand(data, self.model.hands)))

    @rule()
    def sweep(self) -> None:
        self.do(self.verbs.sweep())

    @rule(worker=WORKERS)
    def heartbeat(self, worker: str) -> None:
        self.do(self.verbs.heartbeat(worker))

    @rule()
    def make_due(self) -> None:
        self.do(self.verbs.make_due())
