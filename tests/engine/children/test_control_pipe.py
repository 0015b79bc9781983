"""Tests of control messages: they arrive complete and in order, or the parent detects the failure."""

import sys
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.child_exit import ExitCause
from tidemill.engine.children.child_process import ChildProcess
from tidemill.engine.children.control_pipe import (
    MAX_MESSAGE_BYTES,
    ControlDecoder,
    ControlMessage,
    EndSliceMessage,
    StartSliceMessage,
    StopMessage,
    WakeMessage,
    encode_message,
)

kinds = st.from_regex(r"[a-z0-9][a-z0-9_.:-]{0,99}", fullmatch=True)
messages: st.SearchStrategy[ControlMessage] = st.one_of(
    st.just(WakeMessage()),
    st.just(StopMessage()),
    st.builds(StartSliceMessage, st.integers(1, 10**12), st.uuids(), kinds, st.integers(1, 10**9)),
    st.builds(EndSliceMessage, st.integers(1, 10**12)),
)


@given(st.lists(messages), st.lists(st.integers(1, 40)))
def test_control_messages_survive_reads_split_anywhere(said: list[ControlMessage], cuts: list[int]) -> None:
    stream = b"".join(map(encode_message, said))
    heard: list[ControlMessage] = []
    decoder = ControlDecoder()
    for size in [*cuts, len(stream)]:
        heard += decoder.feed(stream[:size])
        stream = stream[size:]
    assert heard == said


def test_incomplete_control_message_is_decoded_when_complete() -> None:
    decoder = ControlDecoder()
    assert decoder.feed(b"w\ns\ne 1") == [WakeMessage(), StopMessage()]
    assert decoder.feed(b"2") == []
    assert decoder.feed(b"\n") == [EndSliceMessage(12)]


@given(messages)
def test_control_message_fits_into_one_write(message: ControlMessage) -> None:
    assert len(encode_message(message)) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize("kind", ["a\nb", "a" * MAX_MESSAGE_BYTES, "a b"])
def test_encode_rejects_unencodable_kind(kind: str) -> None:
    with pytest.raises(ValueError, match="too long or has spaces"):
        encode_message(StartSliceMessage(1, UUID(int=0), kind, 1_000))


def test_decoder_rejects_unknown_control_message() -> None:
    with pytest.raises(ValueError, match="Unknown control message"):
        ControlDecoder().feed(b"k 1\n")


@pytest.fixture
def deaf() -> ChildProcess:
    """A child that never reads its control pipe."""
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    return ChildProcess(0, "w", lambda *_: argv, 1, {})


def test_start_slice_returns_false_when_control_pipe_is_full_or_child_died(deaf: ChildProcess) -> None:
    deaf.shared_state.set_accepts_slices(True)
    assert deaf.can_start_slice
    while deaf.send_message(WakeMessage()):
        pass
    assert not deaf.request_slice(uuid4(), "test", 1.0, 1.0)
    assert deaf.can_start_slice, "no slice is pending"
    end(deaf)
    assert not deaf.request_slice(uuid4(), "test", 1.0, 1.0)
    assert not deaf.can_start_slice


def test_child_runs_one_slice_at_a_time_and_becomes_overdue(deaf: ChildProcess) -> None:
    deaf.shared_state.set_accepts_slices(True)
    assert deaf.request_slice(uuid4(), "test", 60.0, 1.0)
    assert not deaf.can_start_slice
    assert not deaf.is_slice_overdue
    deaf.request_slice_end(-100.0)
    assert deaf.is_slice_overdue
    deaf.shared_state.mark_slice_ended(1)
    assert not deaf.is_slice_overdue
    assert deaf.can_start_slice
    end(deaf)


def end(hand: ChildProcess) -> None:
    hand.kill(ExitCause.STOPPED)
    while hand.reap() is None:
        pass
    hand.shared_state.close()
