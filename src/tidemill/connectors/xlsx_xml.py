"""XML parts of a workbook, parsed as they are unpacked. A document type is refused: no honest part has one."""

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO
from xml.parsers import expat

from tidemill.domain.errors import InvalidInput

PIECE = 64 * 1024
Attributes = dict[str, str]


_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")
_NO_CHARACTERS = ("0000", "D8", "D9", "DA", "DB", "DC", "DD", "DE", "DF")  # NUL, and halves of a pair


def unescape(text: str) -> str:
    """Workbooks write what XML cannot hold as _x0007_. What no text can hold stays as it is written."""
    return _ESCAPE.sub(_unescaped, text) if "_x" in text else text


def _unescaped(match: re.Match[str]) -> str:
    return match[0] if match[1].upper().startswith(_NO_CHARACTERS) else chr(int(match[1], 16))


class Part:
    """What a parser of one part hears: elements without their prefix, and their text."""

    def start(self, name: str, attributes: Attributes) -> None: ...
    def end(self, name: str) -> None: ...
    def text(self, data: str) -> None: ...


def parse(pieces: Iterator[bytes], part: Part) -> Iterator[None]:
    """Feed a part; stops after every piece, so that what was found can be taken away."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse

    def begin(name: str, _: Attributes) -> None:
        """The root tells whether names have a prefix; most have none, and there are millions of them."""
        if ":" in name:
            parser.StartElementHandler = lambda name, attributes: part.start(name.rpartition(":")[2], attributes)
            parser.EndElementHandler = lambda name: part.end(name.rpartition(":")[2])
        else:
            parser.StartElementHandler, parser.EndElementHandler = part.start, part.end
        parser.CharacterDataHandler = part.text

    parser.StartElementHandler = begin
    try:
        for piece in pieces:
            parser.Parse(piece, False)
            yield
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise InvalidInput(f"the workbook is damaged: {error}") from error
    yield


def pieces_of(open_: Callable[[], IO[bytes]]) -> Iterator[bytes]:
    try:
        with open_() as member:
            while piece := member.read(PIECE):
                yield piece
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InvalidInput(f"the workbook is damaged: {error}") from error


def _refuse(*_: object) -> None:
    raise InvalidInput("the workbook is refused: its XML declares a document type")
