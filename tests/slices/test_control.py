"""What a parent says to its child arrives whole, in order, or the parent knows that it did not."""

import sys
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.crash import Cause
from tidemill.engine.control import MAX_LINE, Begin, Decoder, End, Message, Stop, Wake, encode
from tidemill.engine.hand import Hand

kinds = st.from_regex(r"[a-z0-9][a-z0-9_.:-]{0,99}", fullmatch=True)
messages: st.SearchStrategy[Message] = st.one_of(
    st.just(Wake()),
    st.just(Stop()),
    st.builds(Begin, st.integers(1, 10**12), st.uuids(), kinds, st.integers(1, 10**9)),
    st.builds(End, st.integers(1, 10**12)),
)


@given(st.lists(messages), st.lists(st.integers(1, 40)))
def test_messages_survive_reads_that_end_anywhere(said: list[Message], cuts: list[int]) -> None:
    stream = b"".join(map(encode, said))
    heard: list[Message] = []
    decoder = Decoder()
    for size in [*cuts, len(stream)]:
        heard += decoder.feed(stream[:size])
        stream = stream[size:]
    assert heard == said


def test_a_message_that_is_not_whole_is_not_heard_yet() -> None:
    decoder = Decoder()
    assert decoder.feed(b"w\ns\ne 1") == [Wake(), Stop()]
    assert decoder.feed(b"2") == []
    assert decoder.feed(b"\n") == [End(12)]


@given(messages)
def test_every_message_is_written_in_one_piece(message: Message) -> None:
    assert len(encode(message)) <= MAX_LINE


@pytest.mark.parametrize("kind", ["a\nb", "a" * MAX_LINE, "a b"])
def test_what_would_not_be_understood_is_not_said(kind: str) -> None:
    with pytest.raises(ValueError, match="cannot be said"):
        encode(Begin(1, UUID(int=0), kind, 1_000))


def test_nobody_takes_noise_for_a_message() -> None:
    with pytest.raises(ValueError, match="does not say"):
        Decoder().feed(b"k 1\n")


@pytest.fixture
def deaf() -> Hand:
    """A child that never listens."""
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    return Hand(0, "w", lambda *_: argv, 1, {})


def test_a_slice_that_cannot_be_said_is_refused_and_not_lost(deaf: Hand) -> None:
    deaf.book.set_ready(True)
    assert deaf.is_free
    while deaf.tell(Wake()):
        pass
    assert not deaf.begin_slice(uuid4(), "test", 1.0, 1.0)
    assert deaf.is_free, "it owes nothing"
    end(deaf)
    assert not deaf.begin_slice(uuid4(), "test", 1.0, 1.0)
    assert not deaf.is_free


def test_a_child_has_one_slice_at_a_time_and_is_overdue_when_it_does_not_end_it(deaf: Hand) -> None:
    deaf.book.set_ready(True)
    assert deaf.begin_slice(uuid4(), "test", 60.0, 1.0)
    assert not deaf.is_free
    assert not deaf.is_overdue
    deaf.end_slice(-100.0)
    assert deaf.is_overdue
    deaf.book.end_slice(1)
    assert not deaf.is_overdue
    assert deaf.is_free
    end(deaf)


def end(hand: Hand) -> None:
    hand.kill(Cause.STOPPED)
    while hand.reap() is None:
        pass
    hand.book.close()
