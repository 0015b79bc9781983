"""Compares a lane's page with a simple model, in random order of steps."""

from uuid import UUID, uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.core.decide import Verdict
from tidemill.core.status import ItemStatus
from tidemill.engine.children.shared_state import VERDICT_AREA_BYTES, SharedState

SLOTS = st.integers(0, 5)
SIZES = st.sampled_from([0, 10, 1_000, VERDICT_AREA_BYTES // 3, VERDICT_AREA_BYTES])


class PageMachine(RuleBasedStateMachine):
    """One lane: at most one flush is in progress while the next one fills."""

    def __init__(self) -> None:
        super().__init__()
        self.book = SharedState.create(1)
        self.page = self.book.lanes[0]
        self.lease: UUID | None = None
        self.slots: dict[int, tuple[int, int]] = {}
        self.filling: list[Verdict] = []
        self.flushing: tuple[int, list[Verdict]] | None = None
        self.flush_no = 0
        self.seq = 0
        self.whole = 0

    @rule(ingest=st.booleans())
    def begin(self, ingest: bool) -> None:
        self.lease = uuid4()
        self.page.reset_and_record_lease(self.lease, ingest=ingest)
        self.slots, self.filling, self.flushing, self.flush_no, self.whole = {}, [], None, 0, 0
        assert self.page.is_ingest == ingest

    @precondition(lambda self: self.lease is not None)
    @rule(slot=SLOTS, attempt=st.integers(1, 5))
    def start(self, slot: int, attempt: int) -> None:
        self.page.mark_item_started(slot, self.seq, attempt)
        self.slots[slot] = (self.seq, attempt)
        self.seq += 1

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), size=SIZES)
    def finish(self, data: st.DataObject, size: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.slots)))
        seq, attempt = self.slots[slot]
        verdict = Verdict(seq, ItemStatus.DONE, attempt, 1, b"x" * size)
        if self.page.record_verdict(verdict):
            self.filling.append(verdict)
            self.page.free_item_slot(slot)
            del self.slots[slot]
        else:
            held = sum(len(kept.result or b"") for kept in self.filling)
            assert held + size > VERDICT_AREA_BYTES - 100 * (len(self.filling) + 1), "rejected too early"

    @precondition(lambda self: self.lease is not None and self.flushing is None)
    @rule()
    def seal(self) -> None:
        self.sealed = self.page.seal_verdict_area(self.flush_no)
        self.flushing, self.filling = (self.flush_no, self.filling), []
        self.flush_no += 1

    @precondition(lambda self: self.flushing is not None)
    @rule()
    def flushed(self) -> None:
        self.page.discard_verdict_area(self.sealed, next_flush_no=self.flush_no)
        self.flushing = None

    @precondition(lambda self: self.lease is not None)
    @rule(count=st.integers(0, 1_000))
    def whole_batch(self, count: int) -> None:
        self.whole = count
        if count:
            self.page.mark_batch_started(count)
        else:
            self.page.mark_batch_ended()

    @rule()
    def end(self) -> None:
        self.page.clear_lease()
        self.lease = None
        self.slots, self.flushing = {}, None

    @invariant()
    def the_parent_sees_the_model(self) -> None:
        assert self.page.lease_id == self.lease
        if self.lease is None:
            return
        assert [(hand.seq, hand.attempt) for hand in self.page.list_running_items()] == [
            v for _, v in sorted(self.slots.items())
        ]
        assert self.page.batch_item_count == self.whole
        expected = [] if self.flushing is None or not self.flushing[1] else [self.flushing]
        expected += [(self.flush_no, self.filling)] if self.filling else []
        assert self.page.read_unflushed_verdicts() == expected

    def teardown(self) -> None:
        self.book.close()


TestPage = PageMachine.TestCase
TestPage.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
