"""Which encoding a text is in."""

import codecs
import re

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_LIKELY = ["cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "iso8859-2", "koi8-r", "cp932", "gb18030", "big5", "cp949"]
_FALLBACK = "cp1252"
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x19\x1c-\x1f\x7f]")  # not ^Z, which may end a text, and not Escape
LINES = 50  # that are compared: a few tell as much as all


def find_encoding(head: bytes, far: list[bytes], said: str | None) -> str:
    """By its mark, else as declared, else UTF-8 if it is, else the likeliest of a short list."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    if said is not None:
        return said
    return _wide(head) or ("utf-8" if _is_utf8(far) else _likeliest(far))


def has_controls(data: bytes) -> bool:
    """Whether there is what no text has, in whatever encoding of a byte a character."""
    return _CONTROLS.search(data) is not None


def utf8_text(data: bytes, encoding: str) -> str:
    return codecs.getincrementaldecoder(encoding)("replace").decode(data)


def _wide(head: bytes) -> str | None:
    """Two bytes a character, without a mark: every other byte is zero."""
    even, odd = head[0:2000:2], head[1:2000:2]
    if len(odd) > 1 and odd.count(0) > 0.7 * len(odd) and not even.count(0):
        return "utf-16-le"
    return "utf-16-be" if len(odd) > 1 and even.count(0) > 0.7 * len(even) and not odd.count(0) else None


def _is_utf8(far: list[bytes]) -> bool:
    """Whether it is, but for some bytes: of a text in another encoding more are wrong than are right by chance.

    Most of all in GBK, where one right sign comes to six wrong bytes.
    """
    text = b"\n".join(far).decode(errors="surrogateescape")
    bad = sum("\udc80" <= letter <= "\udcff" for letter in text)
    good = sum(letter > "\x7f" for letter in text) - bad
    return bad == 0 or good > bad


def _likeliest(far: list[bytes]) -> str:
    """Where two of them would read the same, the more common one."""
    window = b"\n".join(map(_around, far[:LINES]))
    # Most files are UTF-8: no process that never meets another one has to load tables of all the others.
    from charset_normalizer import from_bytes  # noqa: PLC0415

    best = from_bytes(window, cp_isolation=_LIKELY, enable_fallback=False).best()
    if best is None or best.encoding in ("ascii", "utf_8"):
        return _FALLBACK
    try:
        is_same = window.decode(_FALLBACK) == str(best)
    except UnicodeDecodeError:
        is_same = False
    return _FALLBACK if is_same else codecs.lookup(best.encoding).name


def _around(line: bytes) -> bytes:
    """A long line, from a little before its first byte that is not ASCII."""
    at = next(n for n, byte in enumerate(line) if byte > 0x7F)  # noqa: PLR2004
    return line[max(0, at - 100) : at + 1000]
