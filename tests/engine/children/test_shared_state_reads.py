"""Tests that a shared text is read completely or not at all, even if its writer crashes or writes at the same time."""

import itertools
import json
import multiprocessing
import os
from multiprocessing.synchronize import Event

from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.children.shared_state import (
    MAX_SHARED_TEXT_BYTES,
    SHARED_TEXT_BYTES,
    TEXT_SEQUENCE_WORD,
    SeqlockText,
    SharedState,
)


def blank() -> SeqlockText:
    return SeqlockText(memoryview(bytearray(SHARED_TEXT_BYTES)))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_shared_text_reader_gets_latest_text(texts: list[bytes]) -> None:
    note = blank()
    assert note.read() is None
    for text in texts:
        assert note.write(text)
        assert note.read() == text


def test_shared_text_write_over_size_limit_keeps_old_text() -> None:
    note = blank()
    assert note.write(b"x" * MAX_SHARED_TEXT_BYTES)
    assert not note.write(b"y" * (MAX_SHARED_TEXT_BYTES + 1))
    assert note.read() == b"x" * MAX_SHARED_TEXT_BYTES


def test_shared_text_of_interrupted_write_is_not_read_until_next_write() -> None:
    note = blank()
    note.write(b"old")
    note._header[TEXT_SEQUENCE_WORD] += 1
    note._text[:2] = b"ne"
    assert note.read() is None
    note.write(b"newer")
    assert note.read() == b"newer"


def test_shared_text_with_wrong_checksum_is_not_read() -> None:
    """As on a processor that reorders writes: the count is final, the text is not."""
    note = blank()
    note.write(b"old text")
    note.write(b"new text")
    note._text[:3] = b"old"
    assert note.read() is None


def scribble(fd: int, begun: Event) -> None:
    note = SharedState(fd, 1).adaptive_text
    for n in itertools.count():
        note.write(json.dumps([n % 10] * (n % 500)).encode())
        begun.set()


def test_shared_text_is_never_torn_with_concurrent_writer() -> None:
    book = SharedState.create(1)
    os.set_inheritable(book.fd, True)
    fork = multiprocessing.get_context("fork")
    begun = fork.Event()
    writer = fork.Process(target=scribble, args=(book.fd, begun), daemon=True)
    writer.start()
    try:
        assert begun.wait(30)
        texts = [text for _ in range(5_000) if (text := book.adaptive_text.read()) is not None]
        assert len(texts) > 100
        for text in texts:
            assert len(set(json.loads(text))) <= 1
    finally:
        writer.kill()
        writer.join(30)
        book.close()
