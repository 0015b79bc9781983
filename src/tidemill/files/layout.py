"""The formats and options of a file layout, and their validation."""

import codecs
from collections.abc import Callable, Mapping
from typing import Any

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.files.compression import COMPRESSIONS

FORMATS_BY_SUFFIX = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "json",
    ".xlsx": "xlsx",
    ".parquet": "parquet",
    ".zip": "images",
}
KNOWN_FORMATS = ("csv", "images", "json", "ndjson", "parquet", "tsv", "xlsx")
RECORD_FORMATS = tuple(name for name in KNOWN_FORMATS if name != "images")
DELIMITERS_BY_NAME = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " "}
BLANKS_DELIMITER = "blanks"  # one or more spaces or tabs
DELIMITER_MAX_CHARS = 8
HEADER_ROWS_MAX = 10
COMMENT_MAX_CHARS = 8
LINES_MAX = 1 << 53
RECORDS_PATH_MAX_CHARS = 200
FOOTER_LINES_MAX = 1_000  # lines that a reader keeps in memory
LINE_ENDS = ("\n", "\r\n", "\r")
LINE_ENDS_BY_NAME = dict(zip(("lf", "crlf", "cr"), LINE_ENDS, strict=True))
TEXT_ENCODINGS = (
    *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"),
    *("latin-1", "ascii", "mac-roman"),
    *(f"cp{number}" for number in (437, 850, 852, 866, 932, 949, 1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258)),
    *(f"iso8859-{number}" for number in (*range(2, 12), *range(13, 17))),
    *("koi8-r", "koi8-u", "shift_jis", "euc_jp", "gb18030", "gbk", "big5", "euc_kr"),
)
_TEXT_OPTIONS = {"format", "compression", "encoding", "keep_empty"}
_TABLE_OPTIONS = {"header", "header_rows", "skip_lines", "table", "table_lines", "footer_lines", "comment"}
_DIALECT_OPTIONS = {"delimiter", "quote", "escape", "line_end", "trailing_delimiter", "short_rows", "long_rows"}
OPTIONS_BY_FORMAT = {
    "csv": _TEXT_OPTIONS | _TABLE_OPTIONS | _DIALECT_OPTIONS,
    "tsv": _TEXT_OPTIONS | _TABLE_OPTIONS | _DIALECT_OPTIONS,
    "ndjson": _TEXT_OPTIONS | {"flatten"},
    "json": _TEXT_OPTIONS | {"flatten", "records"},
    "xlsx": {"format", "sheet", "header", "header_rows", "skip_lines", "keep_empty"},
    "parquet": {"format", "keep_empty"},
    "images": {"format"},
}
_ENCODING_BY_CODEC_NAME = {codecs.lookup(name).name: name for name in TEXT_ENCODINGS}
_FLAGS_BY_TEXT = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def parse_layout_options(given: Mapping[str, object]) -> FileLayout:
    """Return the layout with canonical values. InvalidInput lists the allowed values. None means not given."""
    layout = {name: value for name, value in given.items() if value is not None}
    kind = layout.get("format")
    if kind is not None or "format" in given:
        _check_choice("format", kind, KNOWN_FORMATS)
    allowed = OPTIONS_BY_FORMAT[kind] if isinstance(kind, str) else set().union(*OPTIONS_BY_FORMAT.values())
    for name in layout:
        if name not in allowed:
            raise InvalidInput(
                f"{name}: not an option for {kind or 'any format'}; the options are {', '.join(sorted(allowed))}"
            )
    return FileLayout.from_json({name: _OPTION_CHECKS[name](name, value) for name, value in layout.items()})


def normalize_encoding(name: str) -> str | None:
    """Return the canonical name of an encoding; None if it is not supported."""
    try:
        return _ENCODING_BY_CODEC_NAME.get(codecs.lookup(name).name)
    except (LookupError, ValueError):
        return None


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidInput(f"{name}: must be one of {', '.join(map(_quote, allowed))}, not {_quote(value)}")
    return str(value)


def _quote(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) and value.isprintable() else repr(value)


def _parse_encoding(name: str, value: Any) -> str:
    encoding = normalize_encoding(value) if isinstance(value, str) else None
    return _check_choice(name, encoding or value, TEXT_ENCODINGS)


def _parse_delimiter(name: str, value: Any) -> str:
    mark = DELIMITERS_BY_NAME.get(str(value), value)
    if mark == BLANKS_DELIMITER:
        return BLANKS_DELIMITER
    if not isinstance(mark, str) or not 0 < len(mark) <= DELIMITER_MAX_CHARS or any(map(_cannot_delimit, mark)):
        raise InvalidInput(
            f'{name}: must be "blanks" or 1 to {DELIMITER_MAX_CHARS} characters, such as , ; || or tab, and without '
            f"letters, digits and quotes, not {_quote(value)}"
        )
    return mark


def _cannot_delimit(letter: str) -> bool:
    return letter in "\r\n\x00\"'\\" or letter.isalnum()


def _check_escape(name: str, value: Any) -> str:
    if value not in ("", "\\"):
        raise InvalidInput(f"{name}: must be a backslash or empty, not {_quote(value)}")
    return str(value)


def _check_comment(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > COMMENT_MAX_CHARS or not value.isprintable():
        raise InvalidInput(
            f"{name}: must be empty or a prefix of at most {COMMENT_MAX_CHARS} characters, not {_quote(value)}"
        )
    return value


def _make_number_check(most: int, least: int = 0) -> "Callable[[str, Any], int]":
    def check_number(name: str, value: Any) -> int:
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise InvalidInput(f"{name}: must be a whole number from {least} to {most}, not {_quote(value)}")
        return number

    return check_number


def _check_quote(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 1 or (value and (value in "\r\n\x00 ," or not value.isascii())):
        raise InvalidInput(f"{name}: must be empty or one character, such as \" or ', not {_quote(value)}")
    return value


def _parse_flag(name: str, value: Any) -> bool:
    flag = _FLAGS_BY_TEXT.get(str(value).lower())
    if flag is None:
        raise InvalidInput(f"{name}: must be true or false, not {_quote(value)}")
    return flag


def _check_records(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= RECORDS_PATH_MAX_CHARS:
        raise InvalidInput(f"{name}: must be the name of a list, such as items or data.items, not {_quote(value)}")
    return value


def _check_sheet(name: str, value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidInput(f"{name}: must be the name of a sheet or its number, counted from 1, not {_quote(value)}")
    return value


_OPTION_CHECKS: dict[str, Callable[[str, Any], str | int | bool]] = {
    "format": lambda name, value: _check_choice(name, value, KNOWN_FORMATS),
    "compression": lambda name, value: _check_choice(name, value, COMPRESSIONS),
    "line_end": lambda name, value: _check_choice(name, LINE_ENDS_BY_NAME.get(str(value).lower(), value), LINE_ENDS),
    "encoding": _parse_encoding,
    "delimiter": _parse_delimiter,
    "quote": _check_quote,
    "escape": _check_escape,
    "header": _parse_flag,
    "header_rows": _make_number_check(HEADER_ROWS_MAX),
    "skip_lines": _make_number_check(LINES_MAX),
    "table": _make_number_check(LINES_MAX, 1),
    "table_lines": _make_number_check(LINES_MAX),
    "footer_lines": _make_number_check(FOOTER_LINES_MAX),
    "comment": _check_comment,
    "trailing_delimiter": _parse_flag,
    "short_rows": lambda name, value: _check_choice(name, value, ("report", "pad")),
    "long_rows": lambda name, value: _check_choice(name, value, ("report", "cut")),
    "records": _check_records,
    "flatten": _parse_flag,
    "keep_empty": _parse_flag,
    "sheet": _check_sheet,
}
