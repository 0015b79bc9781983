"""Every verb of the engine in random order, and after every step every item is where it must be."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from machine.model import MAX_ATTEMPTS, ReaderModel
from machine.rules import CODES, SIZES, WORKERS, BatchRules, has_jobs, has_readers
from machine.world import World
from tidemill.domain.status import REPROCESSABLE, Intent, ItemStatus
from tidemill.store.reprocess import Choice
from tidemill.store.throwaway import ThrowawayServer

REDRIVE = Choice(statuses=(ItemStatus.FAILED, ItemStatus.CANCELLED))


class EngineMachine(BatchRules):
    """The rules of batches, those of whole jobs and their sources, and the comparison after each step."""

    @invariant()
    def every_item_is_where_it_must_be(self) -> None:
        self.do(self.verbs.world.compare(self.model))

    def a_reader(self, data: st.DataObject) -> ReaderModel:
        return self.model.readers[data.draw(st.integers(0, len(self.model.readers) - 1), label="reader")]

    @has_jobs
    @rule(data=st.data(), intent=st.sampled_from([Intent.PAUSE, Intent.RUN, Intent.CANCEL]))
    def want(self, data: st.DataObject, intent: Intent) -> None:
        self.do(self.verbs.want(self.a_job(data).id, intent))

    @has_jobs
    @rule(data=st.data(), verb=st.sampled_from(["fail", "police", "fold", "finalize", "cancel_condemned"]))
    def tend(self, data: st.DataObject, verb: str) -> None:
        self.do(getattr(self.verbs, verb)(self.a_job(data).id))

    @rule()
    def close_what_is_over(self) -> None:
        self.do(self.verbs.cancel_condemned(None))
        for job_id in list(self.model.jobs):
            self.do(self.verbs.finalize(job_id))

    @has_jobs
    @rule(data=st.data(), statuses=st.sets(st.sampled_from(sorted(REPROCESSABLE)), min_size=1), reset=st.booleans())
    def reprocess(self, data: st.DataObject, statuses: set[ItemStatus], reset: bool) -> None:
        job = self.a_job(data)
        chosen = sorted(statuses - ({ItemStatus.DONE} if job.sparse else set()))
        seqs = self.some(data, [item.seq for item in job.items]) if data.draw(st.booleans(), label="by seq") else None
        codes = data.draw(st.none() | st.sampled_from([["odd"], ["even"], CODES]), label="codes")
        self.do(
            self.verbs.reprocess(job.id, Choice(chosen, seqs, codes, reset_attempts=reset, max_attempts=MAX_ATTEMPTS))
        )

    @has_jobs
    @rule(data=st.data())
    def redrive(self, data: st.DataObject) -> None:
        self.do(self.verbs.reprocess(self.a_job(data).id, REDRIVE))

    @has_jobs
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.do(self.verbs.delete(self.a_job(data).id))

    @rule()
    def remove_rows(self) -> None:
        self.do(self.verbs.remove_rows())

    @has_jobs
    @rule(data=st.data(), status=st.none() | st.sampled_from(list(ItemStatus)), limit=st.sampled_from([1, 5, 100]))
    def list_items(self, data: st.DataObject, status: ItemStatus | None, limit: int) -> None:
        self.do(self.verbs.list_items(self.a_job(data).id, status, limit))

    @rule(worker=WORKERS)
    def take_source(self, worker: str) -> None:
        self.do(self.verbs.take_source(worker))

    @has_readers
    @rule(data=st.data(), n=st.integers(1, 20), size=SIZES)
    def append(self, data: st.DataObject, n: int, size: int) -> None:
        self.do(self.verbs.append(self.a_reader(data), n, size))

    @precondition(lambda machine: any(reader.last for reader in machine.model.readers))
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        reader = self.a_reader(data)
        if reader.last is not None:
            self.do(self.verbs.append_again(reader))

    @has_readers
    @rule(data=st.data())
    def expire_reader(self, data: st.DataObject) -> None:
        self.do(self.verbs.expire_reader(self.a_reader(data)))

    @has_readers
    @rule(data=st.data(), at_the_end=st.booleans())
    def stop_reading(self, data: st.DataObject, at_the_end: bool) -> None:
        self.do(self.verbs.stop_reading(self.a_reader(data), at_the_end=at_the_end))


@pytest.fixture
def world(tidemill_server: ThrowawayServer) -> Iterator[World]:
    url = tidemill_server.create()
    world = World(url)
    yield world
    world.close()
    tidemill_server.drop(url)


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


def test_no_order_of_verbs_breaks_the_engine(world: World) -> None:
    turn(world, examples=60, steps=30)


@pytest.mark.full
def test_no_order_of_verbs_breaks_the_engine_in_a_long_search(world: World) -> None:
    turn(world, examples=2_000, steps=50)
