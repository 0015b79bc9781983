"""Texts and JSON with ``{column}`` placeholders. Values are escaped for their position in a URL or in JSON."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

TEMPLATE_MAX_DEPTH = 16
URL_VALUE_MAX_CHARS = 2_000  # characters of a value in a URL
_PLACEHOLDER_PATTERN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class EmptyTemplateValue(Exception):
    """A row has no value in a ``column`` that the template needs."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class PathTraversal(Exception):
    """A value adds a ``.`` or ``..`` segment to a path."""


def has_path_traversal(path: str) -> bool:
    """Whether a server may read ``.`` or ``..`` in the path, after decoding it any number of times."""
    while (plain := unquote(path)) != path:
        path = plain
    return any(part.partition(";")[0] in (".", "..") for part in re.split(r"[/\\?]", path))


def find_template_problem(template: str) -> str | None:
    """Why a template is not valid, or None; ``{{`` and ``}}`` are literal braces."""
    for found in _PLACEHOLDER_PATTERN.finditer(template):
        if found.group() in ("{", "}"):
            return f"a {found.group()} without its other half; {{{{ and }}}} are the marks themselves"
        if found[1] is not None and not found[1].strip():
            return "{} names no column"
    return None


def list_template_columns(template: Any) -> Iterator[str]:
    """The columns that a text, or the texts in JSON, refer to."""
    if isinstance(template, str):
        yield from (found[1] for found in _PLACEHOLDER_PATTERN.finditer(template) if found[1] is not None)
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from list_template_columns(value)
    elif isinstance(template, list):
        for value in template:
            yield from list_template_columns(value)


def list_template_problems(template: Any, depth: int = 0) -> Iterator[str]:
    """As ``find_template_problem``, for every text in a JSON value."""
    if depth > TEMPLATE_MAX_DEPTH:
        yield f"it is nested more than {TEMPLATE_MAX_DEPTH} deep"
    elif isinstance(template, str):
        problem = find_template_problem(template)
        if problem:
            yield problem
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from list_template_problems(value, depth + 1)
    elif isinstance(template, list):
        for value in template:
            yield from list_template_problems(value, depth + 1)


def fill_path(template: str, row: Mapping[str, Any]) -> str:
    """A path and query with the values of a row, escaped so that none ends its segment; an empty value raises."""

    def replace_placeholder(found: "re.Match[str]") -> str:
        if found[1] is None:
            return quote(found.group()[0], safe="")
        text = _format_row_value(row, found[1])
        if not text or text in (".", ".."):
            raise EmptyTemplateValue(found[1])
        return quote(text[:URL_VALUE_MAX_CHARS], safe="", errors="replace")

    path = _PLACEHOLDER_PATTERN.sub(replace_placeholder, template)
    if has_path_traversal(path.partition("?")[0]):
        raise PathTraversal
    return path


def fill_json(template: Any, row: Mapping[str, Any]) -> Any:
    """JSON with the values of a row. A text that is only a placeholder becomes the value with its type."""
    if isinstance(template, str):
        whole = _PLACEHOLDER_PATTERN.fullmatch(template)
        if whole is not None and whole[1] is not None:
            return row.get(whole[1])
        return _PLACEHOLDER_PATTERN.sub(
            lambda found: found.group()[0] if found[1] is None else _format_row_value(row, found[1]), template
        )
    if isinstance(template, Mapping):
        return {name: fill_json(value, row) for name, value in template.items()}
    if isinstance(template, list):
        return [fill_json(value, row) for value in template]
    return template


def _format_row_value(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip() if isinstance(value, str | int | float) else ""
