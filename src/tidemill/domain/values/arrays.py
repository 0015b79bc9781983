"""Arrays: a JSON list in any format, or PostgreSQL's own ``{a,b}``, which the server judges."""

import json
from dataclasses import replace
from typing import Any

from tidemill.domain.resource import Field
from tidemill.domain.values.columns import Found, Texts
from tidemill.domain.values.problem import is_storable
from tidemill.domain.values.types import READERS


def read_array(field: Field, texts: Texts) -> Found:
    found, wrong = list(texts), {}
    element = replace(field, type=field.element or "text", element=None)
    for index, text in enumerate(texts):
        if text is None or (text.startswith("{") and text.endswith("}")):
            continue
        try:
            found[index] = _literal(element, json.loads(text))
        except (ValueError, RecursionError) as error:
            wrong[index] = f"not a list: {error}" if text.startswith("[") else 'not a list like ["a", "b"]'
    return found, wrong


def _literal(element: Field, value: Any) -> str:
    """A list as PostgreSQL writes it. Lists in lists are dimensions."""
    if not isinstance(value, list):
        raise ValueError("a list is wanted")  # noqa: TRY004  a mistake of the file, not of ours
    if any(isinstance(part, list) for part in value):
        return "{" + ",".join(_literal(element, part) for part in value) + "}"
    texts: Texts = [_plain(part) for part in value]
    texts, wrong = READERS[element.type](element, texts)
    if wrong:
        raise ValueError(f"{value[min(wrong)]!r} is {wrong[min(wrong)]}")
    if any(text is not None and not is_storable(text) for text in texts):
        raise ValueError("it has a character that PostgreSQL cannot store")
    return "{" + ",".join("NULL" if text is None else _quoted(text) for text in texts) + "}"


def _plain(part: Any) -> str | None:
    if part is None or isinstance(part, str):
        return part
    if isinstance(part, bool):
        return "true" if part else "false"
    return json.dumps(part, ensure_ascii=False)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
