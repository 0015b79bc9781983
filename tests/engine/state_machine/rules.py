"""Random operations on batches."""

from collections import Counter

from hypothesis.stateful import RuleBasedStateMachine

from engine.state_machine.database import World
from engine.state_machine.jobs import SourceVerbs
from engine.state_machine.model import MAX_ATTEMPTS, RETRYABLE_CODE, HandModel, ItemModel, JobModel
from engine.state_machine.seeded_choices import Dice
from tidemill.core.batch import split_evenly, split_off_suspects
from tidemill.core.decide import Verdict
from tidemill.core.status import ItemStatus

WORKERS = ("w1", "w2", "w3")
SIZES = (3, 7, 25, 1_000)
WANTED = (1, 3, 7, 20, 1_000)
CODES = ["odd", RETRYABLE_CODE]
ANSWERS = ("done", "failed", "not_found", "skipped", "retry_wait")
DELAYS = (0.0, 0.0, 60.0, 3_600.0)
POLICIES: list[dict[str, object]] = [{}, {"mode": "fail_fast"}, {"mode": "tolerate", "max_failed": 2}]
WITH_A_LEASE = [
    "flush_part",
    "flush_part",
    "flush_part_and_stop",
    "flush_whole",
    "release",
    "split",
    "expire",
    "freeze",
]
WITH_TIME = ["make_due", "make_due", "sweep", "heartbeat", "remove_rows"]


def verdict_on(item: ItemModel, word: str, code: str, delay: float) -> Verdict:
    """Draw an outcome that is possible with the item's remaining attempts."""
    attempts = item.attempts + 1
    status = ItemStatus(word)
    if status is ItemStatus.RETRY_WAIT and attempts >= MAX_ATTEMPTS:
        status = ItemStatus.FAILED
    if status is ItemStatus.DONE:
        return Verdict(item.seq, status, attempts, 1, b"{}")
    retryable = b"true" if code == RETRYABLE_CODE else b"false"
    error = b'{"code": "%s", "reason": "because", "retryable": %s}' % (code.encode(), retryable)
    waits = delay if status is ItemStatus.RETRY_WAIT else None
    return Verdict(item.seq, status, attempts, 1, None, None, error, code, waits)


class BatchRules(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.verbs = SourceVerbs(world)
        self.model = self.verbs.model
        self.seeds: Counter[int] = Counter()
        self.do = world.do
        self.do(world.empty())

    def a_job(self, dice: Dice) -> JobModel:
        jobs = list(self.model.jobs.values())  # in order of submission: IDs differ between runs
        return jobs[dice.number("job", 0, len(jobs) - 1)]

    def a_claimable_job(self, dice: Dice) -> JobModel:
        """Claim a batch; claims that find nothing are tested, but rarely."""
        claimable = [job for job in self.model.jobs.values() if job.is_claimable]
        if not claimable or dice.number("any job", 0, 9) == 0:
            return self.a_job(dice)
        return claimable[dice.number("claimable job", 0, len(claimable) - 1)]

    def a_hand(self, dice: Dice, hands: list[HandModel]) -> HandModel:
        return hands[dice.number("lease", 0, len(hands) - 1)]

    def answers(self, dice: Dice, job: JobModel, seqs: list[int]) -> list[Verdict]:
        """Draw one outcome for most items and others for a few."""
        mostly = dice.pick("mostly", ANSWERS)
        others = {seq: dice.pick(f"but {seq}", ANSWERS) for seq in dice.some("others", seqs)}
        delay = dice.pick("delay", DELAYS)
        return [
            verdict_on(
                job.items[seq], others.get(seq, mostly), CODES[seq % 2], DELAYS[seq % 4] if seq in others else delay
            )
            for seq in seqs
        ]

    def submit(self, dice: Dice) -> None:
        n = dice.pick("items", (None, None, 0, 1, 3, 7, 15, 30, 60))
        sparse, size = dice.coin("sparse"), dice.pick("cut", SIZES)
        policy = dice.pick("policy", POLICIES)
        priority = dice.number("priority", -1, 1)
        self.do(self.verbs.submit(n, sparse=sparse, size=size, policy=policy, priority=priority))

    def claim(self, dice: Dice) -> None:
        job, wanted = self.a_claimable_job(dice), dice.pick("wanted", WANTED)
        self.do(self.verbs.claim(job.id, wanted, dice.pick("worker", WORKERS)))

    def work(self, dice: Dice) -> None:
        """Run a few batches of one job from claim to flush."""
        job, wanted = self.a_claimable_job(dice), dice.pick("wanted", WANTED)
        for _ in range(dice.number("rounds", 1, 6)):
            hand = self.do(self.verbs.claim(job.id, wanted, "w1"))
            if hand is None:
                return
            self.flush_whole(dice, hand)

    def act(self, dice: Dice) -> None:
        """Perform an operation with a held lease."""
        what = dice.pick("act", WITH_A_LEASE)
        getattr(self, what)(dice, self.a_hand(dice, self.model.hands))

    def flush_whole(self, dice: Dice, hand: HandModel) -> None:
        job = self.model.jobs[hand.lease.job_id]
        self.do(self.verbs.flush(hand, self.answers(dice, job, sorted(hand.holds))))

    def flush_part(self, dice: Dice, hand: HandModel) -> None:
        job = self.model.jobs[hand.lease.job_id]
        if job.sparse:  # flushed completely or not at all
            return
        seqs = dice.some("seqs", sorted(hand.holds), least=1)
        self.do(self.verbs.flush(hand, self.answers(dice, job, seqs)))

    def flush_part_and_stop(self, dice: Dice, hand: HandModel) -> None:
        self.flush_part(dice, hand)
        if hand in self.model.hands:
            getattr(self, dice.pick("stop", ("release", "split", "expire")))(dice, hand)

    def release(self, dice: Dice, hand: HandModel) -> None:
        for_the_dead = dice.coin("for the dead")
        losses = dice.number("losses", 0, 1)
        self.do(self.verbs.release(hand, for_the_dead=for_the_dead, losses=losses))

    def split(self, dice: Dice, hand: HandModel) -> None:
        lease = self.do(self.verbs.look_up(hand))
        suspects = dice.some("suspects", sorted(hand.holds))
        for_the_dead = dice.coin("for the dead")
        crashes = dice.number("crashes", 0, 2)
        pieces = split_off_suspects(lease, suspects) if suspects else split_evenly(lease)
        self.do(self.verbs.split(hand, pieces, for_the_dead=for_the_dead, crashes=crashes))

    def expire(self, dice: Dice, hand: HandModel) -> None:
        """Expire a lease; until it is reclaimed, its holder keeps it."""
        self.do(self.verbs.expire(hand))
        if dice.coin("sweep"):
            self.do(self.verbs.sweep())

    def freeze(self, dice: Dice, hand: HandModel) -> None:
        """Stop a worker until its lease expired and other workers claimed its batch; then resume it."""
        self.do(self.verbs.expire(hand))
        self.do(self.verbs.sweep())
        for _ in range(dice.number("others", 1, 4)):
            self.do(self.verbs.claim(hand.lease.job_id, 1_000, "w4"))
        self.speak_late(dice, hand)

    def speak_late(self, dice: Dice, hand: HandModel) -> None:
        word = dice.pick("says", ANSWERS)
        seqs = sorted(hand.holds) or [hand.lease.lo]
        self.do(self.verbs.flush_late(hand, [verdict_on(ItemModel(seq), word, "late", 0.0) for seq in seqs]))

    def repeat(self, dice: Dice) -> None:
        """Repeat a flush whose response was lost, or flush with a lost lease."""
        taken = {hand.lease.batch_id for hand in self.model.hands}
        zombies = [hand for hand in self.model.zombies if hand.lease.batch_id in taken]  # reclaimed by others
        dangerous = [hand for hand in self.model.hands if hand.last] + zombies
        hand = self.a_hand(dice, dangerous or self.model.zombies + self.model.hands)
        if hand.last:
            self.do(self.verbs.flush_again(hand))
        if hand in self.model.hands:
            self.do(self.verbs.claim_again(hand))
        else:
            self.speak_late(dice, hand)

    def let_time_pass(self, dice: Dice) -> None:
        what = dice.pick("passes", WITH_TIME)
        worker = [dice.pick("worker", WORKERS)] if what == "heartbeat" else []
        self.do(getattr(self.verbs, what)(*worker))
