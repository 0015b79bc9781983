"""Reads a workbook: its sheets, date styles and shared strings. Parses XML parts while decompressing them."""

import mmap
import posixpath
import re
import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, BinaryIO, Literal
from xml.parsers import expat

from tidemill.core.errors import InvalidInput
from tidemill.files.compression import DecompressionLimit, open_zip, report_damaged_archive

XLSX_READ_BYTES = 64 * 1024
XML_TOKEN_MAX_BYTES = 1 << 20  # of a tag with its attributes, or of a comment
XmlAttributes = dict[str, str]


_XLSX_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")
_UNSTORABLE_CODE_PREFIXES = ("0000", "D8", "D9", "DA", "DB", "DC", "DD", "DE", "DF")  # NUL and surrogates


def unescape_xlsx_text(text: str) -> str:
    """Decode escapes such as _x0007_ for characters that XML cannot contain. Unstorable characters stay escaped."""
    return _XLSX_ESCAPE.sub(_unescape_match, text) if "_x" in text else text


def _unescape_match(match: re.Match[str]) -> str:
    return match[0] if match[1].upper().startswith(_UNSTORABLE_CODE_PREFIXES) else chr(int(match[1], 16))


class XmlPartHandler:
    """Receives the elements of one XML part, without namespace prefixes, and their text."""

    def start_element(self, name: str, attributes: XmlAttributes) -> None: ...
    def end_element(self, name: str) -> None: ...
    def add_text(self, data: str) -> None: ...


def parse_xml_part(chunks: Iterator[bytes], handler: XmlPartHandler) -> Iterator[None]:
    """Parse a part; yield after every chunk, so that the caller can take the results so far."""
    parser = _XmlPartParser(handler)
    try:
        for piece in chunks:
            parser.feed(piece)
            yield
        parser.finish()
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: the encoding is not supported
        raise InvalidInput(f"The workbook is damaged: {error}") from error
    yield


class _XmlPartParser:
    """Passes the elements of a part to its handler, and rejects a token that grows from chunk to chunk.

    The parser scans an incomplete token again with every chunk, which takes minutes for a tag of some megabytes.
    """

    def __init__(self, handler: XmlPartHandler) -> None:
        self._handler = handler
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = _refuse_doctype
        self._parser.StartElementHandler = self._start_root
        self._start: Callable[[str, XmlAttributes], None] = handler.start_element
        self._end: Callable[[str], None] = handler.end_element
        self._has_root = False
        self._token_bytes = 0  # at most: the chunks since the last one with an element or text

    def feed(self, piece: bytes) -> None:
        if self._has_root:
            if self._token_bytes > XLSX_READ_BYTES:  # the last chunk had no element, perhaps only text
                self._parser.CharacterDataHandler = self._add_text
            self._observe_next_element()
        self._token_bytes += len(piece)
        self._parser.Parse(piece, False)
        if self._token_bytes > XML_TOKEN_MAX_BYTES:
            raise InvalidInput(f"The workbook has an XML tag or comment larger than {XML_TOKEN_MAX_BYTES >> 20} MB")

    def finish(self) -> None:
        self._parser.Parse(b"", True)

    def _start_root(self, name: str, attributes: XmlAttributes) -> None:  # noqa: ARG002  the root is not passed on
        """Strip prefixes only if the root element has one, because parts have millions of elements."""
        handler = self._handler
        if ":" in name:
            self._start = lambda name, attributes: handler.start_element(name.rpartition(":")[2], attributes)
            self._end = lambda name: handler.end_element(name.rpartition(":")[2])
        self._has_root = True
        self._parser.CharacterDataHandler = handler.add_text
        self._restore_element_handlers()

    def _observe_next_element(self) -> None:
        """Observe the first element of a chunk only: a counter would slow down every cell."""
        parser = self._parser

        def start_element(name: str, attributes: XmlAttributes) -> None:
            self._restore_element_handlers()
            self._start(name, attributes)

        def end_element(name: str) -> None:
            self._restore_element_handlers()
            self._end(name)

        parser.StartElementHandler, parser.EndElementHandler = start_element, end_element

    def _restore_element_handlers(self) -> None:
        self._token_bytes = 0
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._start, self._end

    def _add_text(self, data: str) -> None:
        self._token_bytes = 0
        self._handler.add_text(data)


def iter_zip_member_chunks(open_: Callable[[], IO[bytes]]) -> Iterator[bytes]:
    with report_damaged_archive("workbook"), open_() as member:
        while piece := member.read(XLSX_READ_BYTES):
            yield piece


def _refuse_doctype(*_: object) -> None:
    raise InvalidInput("The workbook contains an XML document type declaration, which is not allowed")


DateStyle = Literal["date", "datetime", "time", "duration"]
_BUILT_IN_DATE_STYLES: dict[int, DateStyle] = {
    **dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 59)), "date"),
    **dict.fromkeys((18, 19, 20, 21, 32, 33, 34, 35, 45, 47), "time"),
    22: "datetime",
    46: "duration",
}
_FORMAT_LITERALS = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)
SERIAL_DATE_MAX_DAYS = 2_958_465  # 31 December 9999
_FAKE_LEAP_DAY_SERIAL = 60  # 29 February 1900, which did not exist but has a number in the format
XLSX_STYLES_MAX = 100_000


class StyleCollector(XmlPartHandler):
    """Collects the date style of every cell style."""

    def __init__(self) -> None:
        self.shown: list[DateStyle | None] = []
        self._formats: dict[int, DateStyle | None] = {}
        self._is_cell = False

    def start_element(self, name: str, attributes: XmlAttributes) -> None:
        if name == "numFmt" and len(self._formats) < XLSX_STYLES_MAX:
            self._formats[_parse_format_id(attributes.get("numFmtId"))] = classify_number_format(
                attributes.get("formatCode", "")
            )
        elif name == "cellXfs":
            self._is_cell = True
        elif name == "xf" and self._is_cell and len(self.shown) < XLSX_STYLES_MAX:
            number = _parse_format_id(attributes.get("numFmtId"))
            self.shown.append(self._formats.get(number, _BUILT_IN_DATE_STYLES.get(number)))

    def end_element(self, name: str) -> None:
        if name == "cellXfs":
            self._is_cell = False


def classify_number_format(code: str) -> DateStyle | None:
    """Return whether a number format shows a date, a time, or neither."""
    letters = _FORMAT_LITERALS.sub("", code.partition(";")[0]).lower()
    if "[" in letters:
        return "duration"
    if "general" in letters:
        return None
    has_time = "h" in letters or "s" in letters
    if "y" in letters or "d" in letters or ("m" in letters and not has_time):
        return "datetime" if has_time else "date"
    return "time" if has_time else None


def format_serial_date(number: float, style: DateStyle, *, is_1904: bool) -> str | None:
    """Return the date of a serial number in ISO 8601; None if the number is not a valid date."""
    if style == "duration" or (style == "time" and 0 <= number < 1):
        if number > SERIAL_DATE_MAX_DAYS:
            return None
        seconds = round(number * 86_400)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" if number >= 0 else None
    if number < 0 or (not is_1904 and int(number) == _FAKE_LEAP_DAY_SERIAL):
        return None
    epoch = datetime(1904, 1, 1, tzinfo=UTC) if is_1904 else datetime(1899, 12, 30, tzinfo=UTC)
    days = number + 1 if not is_1904 and number < _FAKE_LEAP_DAY_SERIAL else number
    try:
        moment = epoch + timedelta(milliseconds=round(days * 86_400_000))
    except OverflowError:
        return None
    if style == "date" and number == int(number):
        return moment.date().isoformat()
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def _parse_format_id(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0


_RELATIONSHIPS_PATH = "{}/_rels/{}.rels"


@dataclass(frozen=True, slots=True)
class SheetInfo:
    """A sheet; ``path`` is its part in the archive."""

    name: str
    path: str
    is_hidden: bool


class Workbook:
    """An open workbook. ``max_bytes`` limits the decompressed size of all parts that are read."""

    def __init__(self, file: BinaryIO, *, max_bytes: int, max_text: int) -> None:
        self._file = file
        packed = file.seek(0, 2)
        self._limit = DecompressionLimit(packed, max_bytes)
        self.max_text = max_text
        if not packed:
            raise InvalidInput("The file is empty. An XLSX workbook is required.")
        file.seek(0)
        if not file.read(2).startswith(b"PK"):
            raise InvalidInput("Not an XLSX workbook. If the file contains text, set the format to csv.")
        self.archive = open_zip(file)
        main = _ElementCollector("Relationship", self, "_rels/.rels").find_target_by_type("officeDocument")
        self._root = main.lstrip("/") if main else "xl/workbook.xml"
        folder, name = posixpath.split(self._root)
        workbook = _ElementCollector(("sheet", "workbookPr"), self, self._root)
        self._links = _ElementCollector("Relationship", self, _RELATIONSHIPS_PATH.format(folder, name))
        self._folder = folder
        self.sheets = [self._make_sheet_info(one) for element, one in workbook.found if element == "sheet"]
        properties = [one for element, one in workbook.found if element == "workbookPr"]
        self.is_1904 = any(one.get("date1904") in ("1", "true") for one in properties)
        self.shown = self._read_date_styles(self._resolve_target_path(self._links.find_target_by_type("styles")))
        self.strings = SharedStrings(self, self._resolve_target_path(self._links.find_target_by_type("sharedStrings")))

    def close(self) -> None:
        self.strings.close()
        self.archive.close()
        self._file.close()

    def select_sheet(self, selector: str | int | None) -> SheetInfo:
        """Return a sheet by name or by number from 1, or the first sheet."""
        names = [one.name for one in self.sheets]
        at = _find_sheet_index(names, selector)
        if at is None:
            shown = selector[:SHEET_NAME_IN_MESSAGE_MAX_CHARS] if isinstance(selector, str) else selector
            raise InvalidInput(f'Unknown sheet "{shown}". The workbook has: {list_sheet_names(names) or "no sheets"}.')
        return self.sheets[at]

    def iter_part_chunks(self, path: str) -> Iterator[bytes]:
        try:
            self.archive.getinfo(path)
        except KeyError:
            raise InvalidInput(f"Not an XLSX workbook: {path or 'a part'} is missing") from None
        return self._limit.iter_chunks_within_limit(iter_zip_member_chunks(lambda: self.archive.open(path)))

    def has_part(self, path: str) -> bool:
        return path in self.archive.NameToInfo

    def _make_sheet_info(self, attributes: XmlAttributes) -> SheetInfo:
        link = next((value for key, value in attributes.items() if key.rpartition(":")[2] == "id"), "")
        is_hidden = attributes.get("state", "visible") != "visible"
        return SheetInfo(
            attributes.get("name", ""),
            self._resolve_target_path(self._links.find_target_by_id(link)),
            is_hidden=is_hidden,
        )

    def _read_date_styles(self, path: str) -> list[DateStyle | None]:
        styles = StyleCollector()
        for _ in parse_xml_part(self.iter_part_chunks(path), styles) if self.has_part(path) else ():
            pass
        return styles.shown

    def _resolve_target_path(self, target: str | None) -> str:
        if target is None:
            return ""
        return target.lstrip("/") if target.startswith("/") else posixpath.normpath(f"{self._folder}/{target}")


class SharedStrings(XmlPartHandler):
    """The shared strings of a workbook, in a temporary file, so that they use no memory."""

    def __init__(self, book: Workbook, path: str) -> None:
        self._ends = array("Q", [0])
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  close() closes it
        self._kept: list[str] = []
        self._depth = self._size = 0
        self._is_text = False
        self._limit = book.max_text
        try:
            for _ in parse_xml_part(book.iter_part_chunks(path), self) if book.has_part(path) else ():
                pass
            self._file.flush()
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self._ends[-1] else b""
        except BaseException:
            self._file.close()
            raise

    def get_string_byte_size(self, number: int) -> int:
        """Return the size of a shared string in bytes; InvalidInput if it does not exist."""
        if not 0 <= number < len(self._ends) - 1:
            raise InvalidInput(f"The workbook is damaged: shared string {number} is missing")
        return self._ends[number + 1] - self._ends[number]

    def __getitem__(self, number: int) -> str:
        return self._map[self._ends[number] : self._ends[number + 1]].decode(errors="replace")

    def close(self) -> None:
        self._file.close()

    def start_element(self, name: str, attributes: XmlAttributes) -> None:  # noqa: ARG002
        self._depth += name == "rPh"  # phonetic hints are not part of the text
        self._is_text = name == "t" and not self._depth

    def end_element(self, name: str) -> None:
        self._is_text = False
        self._depth -= name == "rPh"
        if name == "si":
            data = unescape_xlsx_text("".join(self._kept)).encode(errors="replace")
            self._file.write(data)
            self._ends.append(self._ends[-1] + len(data))
            self._kept, self._size = [], 0

    def add_text(self, data: str) -> None:
        if self._is_text:
            self._kept.append(data)
            self._size += len(data)
            if self._size > self._limit:
                raise InvalidInput(f"The workbook has a text longer than {self._limit} characters")


class _ElementCollector(XmlPartHandler):
    """Collects the elements with the given names in a small part, and their attributes."""

    def __init__(self, names: str | tuple[str, ...], book: Workbook, path: str) -> None:
        self.found: list[tuple[str, XmlAttributes]] = []
        self._targets: dict[str, str | None] = {}
        self._names = (names,) if isinstance(names, str) else names
        for _ in parse_xml_part(book.iter_part_chunks(path), self):
            if len(self.found) > 10_000:  # noqa: PLR2004
                raise InvalidInput("The workbook has more than 10,000 parts")

    def start_element(self, name: str, attributes: XmlAttributes) -> None:
        if name in self._names:
            self.found.append((name, attributes))
            self._targets.setdefault(attributes.get("Id", ""), attributes.get("Target"))

    def find_target_by_type(self, kind: str) -> str | None:
        return next((one.get("Target") for _, one in self.found if one.get("Type", "").endswith(f"/{kind}")), None)

    def find_target_by_id(self, link: str) -> str | None:
        return self._targets.get(link) if link else None


SHEET_NUMBER_MAX_DIGITS = 9
SHEETS_IN_MESSAGE_MAX, SHEET_NAME_IN_MESSAGE_MAX_CHARS = 20, 60


def list_sheet_names(names: Sequence[str]) -> str:
    """Return the first names for a message."""
    listed = ", ".join(name[:SHEET_NAME_IN_MESSAGE_MAX_CHARS] for name in names[:SHEETS_IN_MESSAGE_MAX])
    return listed + (", …" if len(names) > SHEETS_IN_MESSAGE_MAX else "")


def _find_sheet_index(names: list[str], selector: str | int | None) -> int | None:
    if selector is None:
        return 0 if names else None
    if selector in names:
        return names.index(str(selector))
    text = str(selector)
    number = int(text) if text.isdecimal() and len(text) <= SHEET_NUMBER_MAX_DIGITS else 0
    return number - 1 if 0 < number <= len(names) else None
