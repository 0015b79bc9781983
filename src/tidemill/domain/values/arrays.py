"""Arrays: a JSON list in any format, or PostgreSQL's own ``{a,b}``, which the server judges."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tidemill.domain.resource import Field
from tidemill.domain.values.columns import Found, Texts
from tidemill.domain.values.documents import as_json
from tidemill.domain.values.problem import is_storable
from tidemill.domain.values.types import READERS

_LITERAL = re.compile(r"(?:(?:\[[+-]?\d+:[+-]?\d+\])+=)?\{.*\}", re.DOTALL).fullmatch


def read_array(field: Field, texts: Texts) -> Found:
    """Of lists that are written alike, as tags often are, each is read once."""
    element = replace(field, type=field.element or "text", element=None)
    literals: dict[str | None, str | None] = {None: None}
    reasons: dict[str | None, str] = {}
    for text in set(texts):
        if text is None:
            continue
        try:
            literals[text] = text if _is_literal(text) else _literal(element, json.loads(text, parse_float=Decimal))
        except (ValueError, RecursionError) as error:
            literals[text] = text
            reasons[text] = f"not a list: {error}" if text.startswith("[") else 'not a list like ["a", "b"]'
    wrong = {index: reasons[text] for index, text in enumerate(texts) if text in reasons} if reasons else {}
    return [literals[text] for text in texts], wrong


def _is_literal(text: str) -> bool:
    """Also with the bounds of its dimensions, as PostgreSQL writes those that do not begin with 1."""
    return bool(_LITERAL(text.strip()))


def _literal(element: Field, value: Any) -> str:
    """A list as PostgreSQL writes it. Lists in lists are dimensions."""
    if not isinstance(value, list):
        raise ValueError("a list is wanted")  # noqa: TRY004  a mistake of the file, not of ours
    if any(isinstance(part, list) for part in value):
        return "{" + ",".join(_literal(element, part) for part in value) + "}"
    texts: Texts = [_plain(part) for part in value]
    texts, wrong = READERS[element.type](element, texts)
    if wrong:
        part = value[min(wrong)]
        raise ValueError(f"{part if isinstance(part, Decimal) else repr(part)} is {wrong[min(wrong)]}")
    if any(text is not None and not is_storable(text) for text in texts):
        raise ValueError("it has a character that PostgreSQL cannot store")
    return "{" + ",".join("NULL" if text is None else _quoted(text) for text in texts) + "}"


def _plain(part: Any) -> str | None:
    if part is None or isinstance(part, str):
        return part
    if isinstance(part, bool):
        return "true" if part else "false"
    return as_json(part)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
