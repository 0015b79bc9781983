"""Constants: what a DEFAULT stands for, where that is always the same."""

import re
from dataclasses import dataclass

from tidemill.domain.catalog.expression import Node, Undecidable, parse
from tidemill.domain.resource import Type

TEXTS = ("text", "character varying", "bpchar", "character", "unknown")
NUMBERS = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
_INTEGER = re.compile(r"-?[0-9]+").fullmatch


@dataclass(frozen=True, slots=True)
class Constant:
    text: str | None


def constant_of(default: str, type_: Type) -> Constant | None:
    """The constant that a DEFAULT is (NULL has no text); None when it is worked out anew for each row."""
    try:
        text = constant(parse(default))
    except Undecidable:
        return None
    if text is not None and type_ == "integer" and not _INTEGER(text):
        return None  # 1.5 for an integer: the server rounds
    return Constant(text)


def constant(node: Node) -> str | None:
    """Its text; Undecidable for anything that is not a constant."""
    if node.kind == "constant":
        return node.value
    (inner,) = node.parts if node.kind == "cast" else (None,)
    if inner is None or (node.value or "").endswith("(…)"):
        raise Undecidable
    # The first cast says what type a literal is of; a second one would turn it into something else.
    if inner.kind == "constant" or _keeps_its_text(inner.value, node.value):
        return constant(inner)
    raise Undecidable


def _keeps_its_text(source: str | None, target: str | None) -> bool:
    return any(source in family and target in family for family in (TEXTS, NUMBERS))
