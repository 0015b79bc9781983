"""A short text that one process writes over and over and another reads: whole, or not at all.

The writer counts before and after (a sequence lock): an odd count is a text in the making. The checksum holds where
the processor does not promise that others see writes in their order.
"""

import zlib

WORD = 8
COUNT, SIZE, CHECKSUM = range(3)
HEAD_BYTES = 4 * WORD
NOTE_BYTES = 8 * 1024
ROOM = NOTE_BYTES - HEAD_BYTES
TRIES = 100


class Note:
    """One writer, any number of readers; nobody waits for anybody."""

    def __init__(self, memory: memoryview) -> None:
        self._head = memory[:HEAD_BYTES].cast("q")
        self._text = memory[HEAD_BYTES:NOTE_BYTES]

    def write(self, text: bytes) -> bool:
        """False when it is too long; then the old one stays."""
        if len(text) > ROOM:
            return False
        head = self._head
        count = head[COUNT] | 1  # odd, also after a writer that died in the middle
        head[COUNT] = count
        head[SIZE], head[CHECKSUM] = len(text), zlib.crc32(text)
        self._text[: len(text)] = text
        head[COUNT] = count + 1
        return True

    def read(self) -> bytes | None:
        """The newest text; None when there is none, or its writer died while writing."""
        for _ in range(TRIES):
            count, size, checksum, _unused = self._head.tolist()
            if count == 0:
                return None
            text = bytes(self._text[: max(0, min(size, ROOM))])
            if not count & 1 and self._head[COUNT] == count and zlib.crc32(text) == checksum:
                return text
        return None
