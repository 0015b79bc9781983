"""A workbook: its sheets, its styles, and the strings that its cells share."""

import mmap
import posixpath
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tidemill.connectors.unpack import guarded
from tidemill.connectors.xlsx_dates import Shown, Styles
from tidemill.connectors.xlsx_xml import Attributes, Part, parse, pieces_of, unescape
from tidemill.connectors.zips import open_zip
from tidemill.domain.errors import InvalidInput

_RELATIONS = "{}/_rels/{}.rels"


@dataclass(frozen=True, slots=True)
class Sheet:
    """``path``: the part that holds it."""

    name: str
    path: str
    is_hidden: bool


class Book:
    """Open parts of one archive. All that is unpacked counts against one limit."""

    def __init__(self, file: BinaryIO, *, max_bytes: int, max_text: int) -> None:
        self._file = file
        self._packed = file.seek(0, 2)
        self._max_bytes = max_bytes
        self.max_text = max_text
        if not self._packed:
            raise InvalidInput("the file is empty: a workbook is a zip of its sheets")
        self.archive = open_zip(file)
        main = _Found("Relationship", self, "_rels/.rels").by_type("officeDocument")
        self._root = main.lstrip("/") if main else "xl/workbook.xml"
        folder, name = posixpath.split(self._root)
        workbook = _Found(("sheet", "workbookPr"), self, self._root)
        self._links = _Found("Relationship", self, _RELATIONS.format(folder, name))
        self._folder = folder
        self.sheets = [self._sheet(one) for element, one in workbook.found if element == "sheet"]
        properties = [one for element, one in workbook.found if element == "workbookPr"]
        self.is_1904 = any(one.get("date1904") in ("1", "true") for one in properties)
        self.shown = self._shown(self._path(self._links.by_type("styles")))
        self.strings = Strings(self, self._path(self._links.by_type("sharedStrings")))

    def close(self) -> None:
        self.strings.close()
        self.archive.close()
        self._file.close()

    def sheet(self, wanted: str | int | None) -> Sheet:
        """By name, by number from 1, or the first."""
        names = [one.name for one in self.sheets]
        at = _position(names, wanted)
        if at is None:
            raise InvalidInput(f"there is no sheet {wanted!r}; there are: {', '.join(names) or 'none'}")
        return self.sheets[at]

    def pieces(self, path: str) -> Iterator[bytes]:
        try:
            self.archive.getinfo(path)
        except KeyError:
            raise InvalidInput(f"not an XLSX workbook: {path or 'a part'} is missing") from None
        return guarded(pieces_of(lambda: self.archive.open(path)), self._packed, self._max_bytes)

    def has(self, path: str) -> bool:
        return path in self.archive.NameToInfo

    def _sheet(self, said: Attributes) -> Sheet:
        link = next((value for key, value in said.items() if key.rpartition(":")[2] == "id"), "")
        is_hidden = said.get("state", "visible") != "visible"
        return Sheet(said.get("name", ""), self._path(self._links.by_id(link)), is_hidden=is_hidden)

    def _shown(self, path: str) -> list[Shown | None]:
        styles = Styles()
        for _ in parse(self.pieces(path), styles) if self.has(path) else ():
            pass
        return styles.shown

    def _path(self, target: str | None) -> str:
        if target is None:
            return ""
        return target.lstrip("/") if target.startswith("/") else posixpath.normpath(f"{self._folder}/{target}")


class Strings(Part):
    """The shared strings, in a file of their own: a million of them take no memory."""

    def __init__(self, book: Book, path: str) -> None:
        self._ends = array("Q", [0])
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the book
        self._kept: list[str] = []
        self._depth = self._size = 0
        self._is_text = False
        self._limit = book.max_text
        try:
            for _ in parse(book.pieces(path), self) if book.has(path) else ():
                pass
            self._file.flush()
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self._ends[-1] else b""
        except BaseException:
            self._file.close()
            raise

    def size(self, number: int) -> int:
        """Of one of them, in bytes."""
        if not 0 <= number < len(self._ends) - 1:
            raise InvalidInput(f"the workbook is damaged: it has no shared string {number}")
        return self._ends[number + 1] - self._ends[number]

    def __getitem__(self, number: int) -> str:
        return self._map[self._ends[number] : self._ends[number + 1]].decode(errors="replace")

    def close(self) -> None:
        self._file.close()

    def start(self, name: str, attributes: Attributes) -> None:  # noqa: ARG002
        self._depth += name == "rPh"  # how it is read aloud is no part of it
        self._is_text = name == "t" and not self._depth

    def end(self, name: str) -> None:
        self._is_text = False
        self._depth -= name == "rPh"
        if name == "si":
            data = unescape("".join(self._kept)).encode(errors="replace")
            self._file.write(data)
            self._ends.append(self._ends[-1] + len(data))
            self._kept, self._size = [], 0

    def text(self, data: str) -> None:
        if self._is_text:
            self._kept.append(data)
            self._size += len(data)
            if self._size > self._limit:
                raise InvalidInput(f"the workbook has a text of more than {self._limit} characters")


class _Found(Part):
    """All elements of some names in a small part, with their attributes."""

    def __init__(self, names: str | tuple[str, ...], book: Book, path: str) -> None:
        self.found: list[tuple[str, Attributes]] = []
        self._names = (names,) if isinstance(names, str) else names
        for _ in parse(book.pieces(path), self):
            if len(self.found) > 10_000:  # noqa: PLR2004
                raise InvalidInput("the workbook has more than 10,000 parts")

    def start(self, name: str, attributes: Attributes) -> None:
        if name in self._names:
            self.found.append((name, attributes))

    def by_type(self, kind: str) -> str | None:
        return next((one.get("Target") for _, one in self.found if one.get("Type", "").endswith(f"/{kind}")), None)

    def by_id(self, link: str) -> str | None:
        return next((one.get("Target") for _, one in self.found if one.get("Id") == link), None)


def _position(names: list[str], wanted: str | int | None) -> int | None:
    if wanted is None:
        return 0 if names else None
    if wanted in names:
        return names.index(str(wanted))
    number = int(wanted) if str(wanted).isdecimal() else 0
    return number - 1 if 0 < number <= len(names) else None
