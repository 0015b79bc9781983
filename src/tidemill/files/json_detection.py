"""Detects whether a JSON text is an array, an object with a list of rows, or NDJSON."""

import json
import re
from contextlib import suppress

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import LayoutFinding

_LIST_OF_OBJECTS = re.compile(r"\[\s*\{")
_BLANKS = re.compile(r"\s*")
LIST_DEPTH_MAX = 4
_decode_json_value = json.JSONDecoder(strict=False).raw_decode


def detect_json_format(text: str, findings: list[LayoutFinding]) -> str:
    """Distinguish an array, an object with a list of rows, and NDJSON: many NDJSON files are named .json."""
    text = text.lstrip("\ufeff \t\r\n")
    if not text.startswith("{"):
        return "json"
    first_line, _, rest = text.partition("\n")
    if rest.lstrip().startswith("{") and _is_json(first_line):
        return "ndjson"
    lists = _find_lists(text)
    if lists:
        name, has_several_rows = lists[0]
        reason = f'The file is one JSON object, and "{name}" is its only list of objects'
        if len(lists) > 1:
            reason = f"The file is one JSON object with several lists of objects: {', '.join(n for n, _ in lists[:5])}"
        confidence = 0.9 if len(lists) == 1 and (has_several_rows or rest.strip()) else 0.5
        findings.append(LayoutFinding(option="records", value=name, confidence=confidence, reason=reason))
        return "json"
    if not _is_json(first_line) and _is_json(text):
        raise InvalidInput("The JSON file is one object without a list of objects. Only lists have rows.")
    return "ndjson"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _find_lists(text: str) -> list[tuple[str, bool]]:
    """Return the lists of objects in the JSON object at the beginning of a text, which may be incomplete.

    Each is a name, or names joined by dots, and whether the list has several elements.
    """
    found: list[tuple[str, bool]] = []
    with suppress(ValueError, IndexError, RecursionError):  # the text ends
        _find_lists_in_object(text, 1, "", found)
    return found


def _find_lists_in_object(text: str, at: int, prefix: str, found: list[tuple[str, bool]]) -> int:
    """Add the lists of the object whose content begins at a position; return the position after the object."""
    while True:
        at = _skip_blanks(text, at)
        if text[at] == "}":
            return at + 1
        key, at = _decode_json_value(text, _skip_blanks(text, at + (text[at] == ",")))
        at = _skip_blanks(text, _skip_blanks(text, at) + 1)
        name = prefix + str(key)
        if text[at] == "{" and name.count(".") < LIST_DEPTH_MAX:
            at = _find_lists_in_object(text, at + 1, f"{name}.", found)
            continue
        is_list = _LIST_OF_OBJECTS.match(text, at) is not None and "." not in str(key)
        if is_list:
            found.append((name, True))
        value, at = _decode_json_value(text, at)
        if is_list:
            found[-1] = name, len(value) > 1


def _skip_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at
