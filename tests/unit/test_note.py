"""A note is read whole or not at all, whatever its writer is doing."""

import itertools
import json
import multiprocessing
import os
from multiprocessing.synchronize import Event

from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.logbook import Logbook
from tidemill.engine.note import COUNT, NOTE_BYTES, ROOM, Note


def blank() -> Note:
    return Note(memoryview(bytearray(NOTE_BYTES)))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_the_newest_text_is_read(texts: list[bytes]) -> None:
    note = blank()
    assert note.read() is None
    for text in texts:
        assert note.write(text)
        assert note.read() == text


def test_a_text_that_is_too_long_leaves_the_old_one() -> None:
    note = blank()
    assert note.write(b"x" * ROOM)
    assert not note.write(b"y" * (ROOM + 1))
    assert note.read() == b"x" * ROOM


def test_a_writer_that_died_in_the_middle_is_not_read_and_its_successor_is() -> None:
    note = blank()
    note.write(b"old")
    note._head[COUNT] += 1
    note._text[:2] = b"ne"
    assert note.read() is None
    note.write(b"newer")
    assert note.read() == b"newer"


def test_a_text_of_which_only_a_part_is_seen_is_not_read() -> None:
    """As on a processor that shows writes in another order: the count says finished, the text is not."""
    note = blank()
    note.write(b"old text")
    note.write(b"new text")
    note._text[:3] = b"old"
    assert note.read() is None


def scribble(fd: int, begun: Event) -> None:
    note = Logbook(fd, 1).note
    for n in itertools.count():
        note.write(json.dumps([n % 10] * (n % 500)).encode())
        begun.set()


def test_no_torn_text_is_ever_read_beside_a_busy_writer() -> None:
    book = Logbook.create(1)
    os.set_inheritable(book.fd, True)
    fork = multiprocessing.get_context("fork")
    begun = fork.Event()
    writer = fork.Process(target=scribble, args=(book.fd, begun), daemon=True)
    writer.start()
    try:
        assert begun.wait(30)
        texts = [text for _ in range(5_000) if (text := book.note.read()) is not None]
        assert len(texts) > 100
        for text in texts:
            assert len(set(json.loads(text))) <= 1
    finally:
        writer.kill()
        writer.join()
        book.close()
