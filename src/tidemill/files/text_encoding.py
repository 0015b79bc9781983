"""Detects the encoding of a text."""

import codecs
import contextlib
import re

from tidemill.files.byte_streams import decode_piece

_ENCODING_BY_BYTE_ORDER_MARK = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_CANDIDATE_ENCODINGS = [
    "cp1252",
    "cp1250",
    "cp1251",
    "cp1253",
    "cp1254",
    "iso8859-2",
    "koi8-r",
    "cp932",
    "gb18030",
    "big5",
    "cp949",
]
_FALLBACK_ENCODING = "cp1252"
_RELATED_ENCODINGS = ("cp1250", "iso8859-2", "cp1254")
_SYMBOL_IN_WORD = re.compile(r"(?<=[^\W\d_])[\u00a1-\u00bf\u00d7\u00f7](?=[^\W\d_])")
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0e-\x19\x1c-\x1f\x7f]")  # without ^Z, which can end a text file, and Escape
_NON_ASCII_WORD = re.compile(rb"[A-Za-z]*[\x80-\xff][A-Za-z\x80-\xff]*")
_ADJACENT_NON_ASCII = re.compile(rb"[\x80-\xff]{2}")
WESTERN_WORDS_MAX = 10
ENCODING_SAMPLE_LINES = 50  # enough to choose an encoding


def detect_encoding(head: bytes, non_ascii_lines: list[bytes], declared: str | None) -> str:
    """Return the encoding: by byte order mark, else as declared, else UTF-8 if valid, else the most likely one."""
    for mark, encoding in _ENCODING_BY_BYTE_ORDER_MARK.items():
        if head.startswith(mark):
            return encoding
    if declared is not None:
        return declared
    return _detect_utf16(head) or ("utf-8" if _is_mostly_utf8(non_ascii_lines) else _guess_encoding(non_ascii_lines))


def has_control_bytes(data: bytes) -> bool:
    """Return whether the data has control bytes, which do not occur in text of any single-byte encoding."""
    return _CONTROL_BYTES.search(data) is not None


def decode_sample(data: bytes, encoding: str) -> str:
    return decode_piece(codecs.getincrementaldecoder(encoding)("replace"), data, encoding, is_last=False)


def _detect_utf16(head: bytes) -> str | None:
    """Detect UTF-16 without a byte order mark: every other byte is zero."""
    even, odd = head[0:2000:2], head[1:2000:2]
    if len(odd) > 1 and odd.count(0) > 0.7 * len(odd) and not even.count(0):
        return "utf-16-le"
    return "utf-16-be" if len(odd) > 1 and even.count(0) > 0.7 * len(even) and not odd.count(0) else None


def _is_mostly_utf8(non_ascii_lines: list[bytes]) -> bool:
    """Return whether the lines are UTF-8 with few invalid bytes.

    In other encodings, more bytes are invalid than valid by chance. GBK is the closest, with one valid character for
    six invalid bytes.
    """
    text = b"\n".join(non_ascii_lines).decode(errors="surrogateescape")
    bad = sum("\udc80" <= letter <= "\udcff" for letter in text)
    good = sum(letter > "\x7f" for letter in text) - bad
    return bad == 0 or good > bad


def _guess_encoding(non_ascii_lines: list[bytes]) -> str:
    """Return the most likely encoding; cp1252 if it gives the same text."""
    window = b"\n".join(map(_cut_around_non_ascii, non_ascii_lines[:ENCODING_SAMPLE_LINES]))
    if _is_western(window):
        return _FALLBACK_ENCODING
    # Imported here because most files are UTF-8 and the import loads large tables.
    from charset_normalizer import from_bytes  # noqa: PLC0415

    best = from_bytes(window, cp_isolation=_CANDIDATE_ENCODINGS, enable_fallback=False).best()
    try:
        text = window.decode(_FALLBACK_ENCODING)
    except UnicodeDecodeError:
        text = ""
    if best is None or best.encoding in ("ascii", "utf_8") or str(best) == text:
        return _prefer_letters(window, text)
    return codecs.lookup(best.encoding).name


def _is_western(window: bytes) -> bool:
    """Return whether a few words have single non-ASCII letters, which are no proof of a rarer encoding."""
    words = set(_NON_ASCII_WORD.findall(window))
    if len(words) > WESTERN_WORDS_MAX or any(_ADJACENT_NON_ASCII.search(word) for word in words):
        return False
    try:
        return not _SYMBOL_IN_WORD.search(window.decode(_FALLBACK_ENCODING))
    except UnicodeDecodeError:
        return False


def _prefer_letters(window: bytes, text: str) -> str:
    """Return cp1252, or the related encoding in which the symbols between letters are letters."""
    if _SYMBOL_IN_WORD.search(text):
        for encoding in _RELATED_ENCODINGS:
            with contextlib.suppress(UnicodeDecodeError):
                if not _SYMBOL_IN_WORD.search(window.decode(encoding)):
                    return encoding
    return _FALLBACK_ENCODING


def _cut_around_non_ascii(line: bytes) -> bytes:
    """Return the part of a line around its first non-ASCII byte."""
    at = next(n for n, byte in enumerate(line) if byte > 0x7F)  # noqa: PLR2004
    return line[max(0, at - 100) : at + 1000]
