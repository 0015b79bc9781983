"""State machine test: all operations of the engine in random order, compared with a model after each step."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from engine.state_machine.database import World
from engine.state_machine.model import ReaderModel
from engine.state_machine.rules import CODES, SIZES, WORKERS, BatchRules
from engine.state_machine.seeded_choices import Dice
from tidemill.core.status import TERMINAL_ITEM_STATUSES, Intent, ItemStatus
from tidemill.store.job_lifecycle import CANCELLABLE_STATUSES, CancelSelection
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.testing.throwaway_postgres import ThrowawayServer

MOST_JOBS = 4
SEEDS = st.integers(0, 2**16 - 1)
INTENTS = {"pause": Intent.PAUSE, "resume": Intent.RUN, "cancel": Intent.CANCEL}
MANAGED = ["fold", "finalize", "police", "fail", *INTENTS]
READ = ["append_again", "expire_reader", "release_source", "finish_source"]
REDRIVE = ReprocessSelection(statuses=(ItemStatus.FAILED, ItemStatus.CANCELLED))


class EngineMachine(BatchRules):
    """Random operations on batches, jobs and sources, and the comparison after each step."""

    @invariant()
    def every_item_is_where_it_must_be(self) -> None:
        self.do(self.verbs.world.compare(self.model))

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        self.submit(Dice(seed))

    @rule(seed=SEEDS)
    def step(self, seed: int) -> None:
        """Perform one operation. There is one rule, because Hypothesis would omit most rules from each example."""
        dice = Dice(seed, self.seeds[seed])
        self.seeds[seed] += 1
        getattr(self, dice.pick("verb", self.possible()))(dice)

    def possible(self) -> list[str]:
        """Return the possible operations; more effective ones appear more often."""
        model = self.model
        verbs = ["submit"] * 2 if len(model.jobs) < MOST_JOBS else []
        if model.jobs:
            verbs += (
                ["claim"] * 4
                + ["work"] * 4
                + ["manage", "manage", "close", "let_time_pass", "list_items", "cancel_rows"]
            )
        if model.hands:
            verbs += ["act"] * 8
        if model.hands or model.zombies:
            verbs += ["repeat"] * 3
        if model.readers or model.next_to_read() is not None:
            verbs += ["read"] * 3 + ["stumble"]
        if any(not item.is_open for job in model.jobs.values() for item in job.items):
            verbs += ["reprocess", "reprocess", "redrive"]
        return verbs + ["delete"] * (len(model.jobs) > 1)

    def manage(self, dice: Dice) -> None:
        job, what = self.a_job(dice), dice.pick("manage", MANAGED)
        if what in INTENTS:
            self.do(self.verbs.want(job.id, INTENTS[what]))
        else:
            self.do(getattr(self.verbs, what)(job.id))

    def close(self, dice: Dice) -> None:
        """Close or fail jobs, as a worker, a user or the maintenance does."""
        who = dice.pick("closes", ["worker", "user", "maintenance"])
        job_ids = list(self.model.jobs) if who == "maintenance" else [self.a_job(dice).id]
        for job_id in job_ids:
            self.do(self.verbs.want(job_id, Intent.CANCEL) if who == "user" else self.verbs.police(job_id))
        self.do(self.verbs.cancel_condemned(None if who == "maintenance" else job_ids[0]))
        for job_id in job_ids:
            self.do(self.verbs.finalize(job_id))

    def reprocess(self, dice: Dice) -> None:
        job, reset = self.a_job(dice), dice.coin("reset")
        statuses = dice.some("statuses", sorted(TERMINAL_ITEM_STATUSES), least=1)
        chosen = [status for status in statuses if not (job.sparse and status is ItemStatus.DONE)]
        seqs = dice.some("seqs", [item.seq for item in job.items]) if dice.coin("by seq") else None
        codes = dice.pick("codes", (None, None, ["odd"], CODES))
        but = dice.some("but", [item.seq for item in job.items]) if dice.coin("all but some") else ()
        self.do(
            self.verbs.reprocess(
                job.id,
                ReprocessSelection(chosen, seqs, codes, excluded_seqs=but, reset_attempts=reset),
            )
        )

    def cancel_rows(self, dice: Dice) -> None:
        job = self.a_job(dice)
        statuses = dice.some("statuses", sorted(CANCELLABLE_STATUSES), least=1)
        seqs = dice.some("seqs", [item.seq for item in job.items]) if dice.coin("by seq") else None
        self.do(self.verbs.cancel_rows(job.id, CancelSelection(statuses, seqs)))

    def redrive(self, dice: Dice) -> None:
        self.do(self.verbs.reprocess(self.a_job(dice).id, REDRIVE))

    def delete(self, dice: Dice) -> None:
        self.do(self.verbs.delete(self.a_job(dice).id))

    def list_items(self, dice: Dice) -> None:
        job, limit = self.a_job(dice), dice.pick("limit", [1, 5, 100])
        for status in dice.some("statuses", [None, *ItemStatus], least=1):
            self.do(self.verbs.list_items(job.id, status, limit))

    def a_reader(self, dice: Dice) -> ReaderModel:
        return self.model.readers[dice.number("reader", 0, len(self.model.readers) - 1)]

    def read(self, dice: Dice) -> None:
        """Acquire an ingest lease if a source is free, and append a chunk."""
        self.do(self.verbs.take_source(dice.pick("worker", WORKERS)))
        reader, size = self.a_reader(dice), dice.pick("cut", SIZES)
        for n in dice.some("chunks", range(1, 21)):
            self.do(self.verbs.append(reader, n, size))

    def stumble(self, dice: Dice) -> None:
        """Lose the response to a chunk, expire an ingest lease, or end an ingest."""
        if self.model.readers:
            what = dice.pick("stumble", READ)
            self.do(getattr(self.verbs, what)(self.a_reader(dice)))


@pytest.fixture
def world(tidemill_server: ThrowawayServer) -> Iterator[World]:
    url = tidemill_server.create_database()
    world = World(url)
    yield world
    world.close()
    tidemill_server.drop_database(url)


def turn(world: World, *, examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: EngineMachine(world), settings=chosen)  # type: ignore[arg-type]


def test_engine_matches_model_after_random_actions(world: World) -> None:
    turn(world, examples=50, steps=30)


@pytest.mark.full
def test_engine_matches_model_after_random_actions_in_long_search(world: World) -> None:
    turn(world, examples=2_000, steps=50)
