"""Texts and JSON with ``{column}`` in them: every value is escaped for where it stands."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

DEEPEST = 16
VALUE_MAX = 2_000  # characters of a value in a URL
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Empty(Exception):
    """A row has nothing where the template wants something; ``column`` is where."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class Upwards(Exception):
    """A row has something in a path that a server may read as the way to the folder above."""


def leads_upwards(path: str) -> bool:
    """Whether some server may find . or .. in it, however often it was escaped, and however it splits paths."""
    while (plain := unquote(path)) != path:
        path = plain
    return any(part.partition(";")[0] in (".", "..") for part in re.split(r"[/\\?]", path))


def problem_of(template: str) -> str | None:
    """What is wrong with a template, if anything; ``{{`` and ``}}`` stand for the marks themselves."""
    for found in _PLACE.finditer(template):
        if found.group() in ("{", "}"):
            return f"a {found.group()} without its other half; {{{{ and }}}} are the marks themselves"
        if found[1] is not None and not found[1].strip():
            return "{} names no column"
    return None


def columns_in(template: Any) -> Iterator[str]:
    """The columns that a text, or JSON with texts in it, asks for."""
    if isinstance(template, str):
        yield from (found[1] for found in _PLACE.finditer(template) if found[1] is not None)
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from columns_in(value)
    elif isinstance(template, list):
        for value in template:
            yield from columns_in(value)


def problems_in(template: Any, depth: int = 0) -> Iterator[str]:
    """The same as ``problem_of``, of every text in a piece of JSON."""
    if depth > DEEPEST:
        yield f"it is nested more than {DEEPEST} deep"
    elif isinstance(template, str):
        problem = problem_of(template)
        if problem:
            yield problem
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from problems_in(value, depth + 1)
    elif isinstance(template, list):
        for value in template:
            yield from problems_in(value, depth + 1)


def fill_path(template: str, row: Mapping[str, Any]) -> str:
    """A URL's path and query: a value can end neither its segment nor the path, nor be empty."""

    def put(found: "re.Match[str]") -> str:
        if found[1] is None:
            return quote(found.group()[0], safe="")
        text = _text(row, found[1])
        if not text or text in (".", ".."):
            raise Empty(found[1])
        return quote(text[:VALUE_MAX], safe="", errors="replace")

    path = _PLACE.sub(put, template)
    if leads_upwards(path.partition("?")[0]):
        raise Upwards
    return path


def fill_json(template: Any, row: Mapping[str, Any]) -> Any:
    """A text that is one place and nothing else becomes the value itself, number or not."""
    if isinstance(template, str):
        whole = _PLACE.fullmatch(template)
        if whole is not None and whole[1] is not None:
            return row.get(whole[1])
        return _PLACE.sub(lambda found: found.group()[0] if found[1] is None else _text(row, found[1]), template)
    if isinstance(template, Mapping):
        return {name: fill_json(value, row) for name, value in template.items()}
    if isinstance(template, list):
        return [fill_json(value, row) for value in template]
    return template


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip() if isinstance(value, str | int | float) else ""
