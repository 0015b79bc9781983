"""Parses expressions in the form of ``pg_get_expr``: operators in parentheses, constants with their type.

Supports the common forms of CHECK constraints and DEFAULTs; other forms raise ``UnsupportedExpression``.
"""

import re
from dataclasses import dataclass
from typing import Literal

from tidemill.core.file_format import ColumnType

NodeKind = Literal["column", "constant", "call", "operator", "any", "array", "and", "or", "null", "not null", "cast"]


EXPRESSION_MAX_DEPTH = 50  # of parentheses and casts; reading deeper ones would exceed the stack


class UnsupportedExpression(Exception):
    """An expression that only PostgreSQL can evaluate."""


@dataclass(frozen=True, slots=True)
class ExpressionNode:
    """``value`` is a column name, the text of a constant (None for NULL), an operator, a function or a type."""

    kind: NodeKind
    value: str | None = None
    parts: tuple["ExpressionNode", ...] = ()


_SQL_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^']|'')*')
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<word>[^\W0-9][\w$]*)
    | (?P<mark>::|[()\[\],.])
    | (?P<operator>[+*/<>=~!@\#%^&|`?-]+)
    )""",
    re.VERBOSE,
)


def parse_expression(text: str) -> ExpressionNode:
    """Return the syntax tree of an expression."""
    reader = _ExpressionParser(text)
    node = reader.parse()
    reader.expect_end()
    return node


class _ExpressionParser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._position, self._depth, at, text = 0, 0, 0, text.strip()
        while at < len(text):
            found = _SQL_TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise UnsupportedExpression(text)
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()

    def expect_end(self) -> None:
        if self._position < len(self._tokens):
            raise UnsupportedExpression(self._tokens[self._position][1])

    def parse(self) -> ExpressionNode:
        self._depth += 1
        if self._depth > EXPRESSION_MAX_DEPTH:
            raise UnsupportedExpression("Too deep")
        node = self._parse_operation()
        self._depth -= 1
        return node

    def _parse_operation(self) -> ExpressionNode:
        node = self._parse_operand()
        if self._next_is("AND") or self._next_is("OR"):
            word = self._advance()[1]
            parts = [node, self._parse_operand()]
            while self._accept(word):
                parts.append(self._parse_operand())
            return ExpressionNode("and" if word == "AND" else "or", None, tuple(parts))
        if self._accept("IS"):
            negated = self._accept("NOT")
            self._expect("NULL")
            return ExpressionNode("not null" if negated else "null", None, (node,))
        if self._peek_kind() == "operator":
            operator = self._advance()[1]
            if self._accept("ANY"):
                return ExpressionNode("any", operator, (node, self._parse_parenthesized()))
            return ExpressionNode("operator", operator, (node, self._parse_operand()))
        return node

    def _parse_operand(self) -> ExpressionNode:
        node = self._parse_primary()
        for _ in range(EXPRESSION_MAX_DEPTH):
            if not self._accept("::"):
                return node
            node = ExpressionNode("cast", self._parse_type_name(), (node,))
        raise UnsupportedExpression("Too many casts")

    def _parse_primary(self) -> ExpressionNode:
        if self._next_is("("):
            return self._parse_parenthesized()
        kind, text = self._advance()
        if kind == "text":
            return ExpressionNode("constant", text[1:-1].replace("''", "'"))
        if kind == "number":
            return ExpressionNode("constant", text)
        if kind == "quoted":
            return self._parse_name(text[1:-1].replace('""', '"'))
        if kind == "word" and text in ("true", "false"):
            return ExpressionNode("constant", text)
        if kind == "word" and text == "NULL":
            return ExpressionNode("constant")
        if kind == "word" and text == "VALUE":  # in a constraint of a domain
            return ExpressionNode("column", text)
        if kind == "word" and text == "ARRAY":
            return ExpressionNode("array", None, tuple(self._parse_list("[", "]")))
        if kind == "word" and not text.isupper():
            return self._parse_name(text)
        raise UnsupportedExpression(text)

    def _parse_name(self, name: str) -> ExpressionNode:
        """Parse a column or a built-in function. Other functions have a schema and are not supported."""
        if self._next_is("."):
            raise UnsupportedExpression(name)
        if self._next_is("("):
            return ExpressionNode("call", name, tuple(self._parse_list("(", ")")))
        return ExpressionNode("column", name)

    def _parse_list(self, opening: str, closing: str) -> list[ExpressionNode]:
        self._expect(opening)
        if self._accept(closing):
            return []
        parts = [self.parse()]
        while self._accept(","):
            parts.append(self.parse())
        self._expect(closing)
        return parts

    def _parse_parenthesized(self) -> ExpressionNode:
        self._expect("(")
        node = self.parse()
        self._expect(")")
        return node

    def _parse_type_name(self) -> str:
        """Parse a type: ``character varying(20)``, ``public.mood``, ``timestamp without time zone``, ``text[]``."""
        words = []
        while self._peek_kind() in ("word", "quoted") and not self._tokens[self._position][1].isupper():
            word = self._advance()[1]
            while self._accept("."):
                word += "." + self._advance()[1]
            words.append(word)
        if self._accept("("):
            while not self._accept(")"):
                self._advance()
            words.append("(…)")  # a length or precision can change the value
        name = " ".join(words)
        while self._accept("["):
            self._expect("]")
            name += "[]"
        if not name:
            raise UnsupportedExpression("Missing type name")
        return name

    def _peek_kind(self) -> str | None:
        return self._tokens[self._position][0] if self._position < len(self._tokens) else None

    def _next_is(self, text: str) -> bool:
        kind = self._peek_kind()
        return kind not in (None, "text", "quoted") and self._tokens[self._position][1] == text

    def _accept(self, text: str) -> bool:
        if not self._next_is(text):
            return False
        self._position += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise UnsupportedExpression(f"Missing {text}")

    def _advance(self) -> tuple[str, str]:
        if self._peek_kind() is None:
            raise UnsupportedExpression("Unexpected end of the expression")
        self._position += 1
        return self._tokens[self._position - 1]


TEXT_SQL_TYPES = ("text", "character varying", "bpchar", "character", "unknown")
NUMERIC_SQL_TYPES = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
_match_integer = re.compile(r"-?[0-9]+").fullmatch


@dataclass(frozen=True, slots=True)
class DefaultConstant:
    text: str | None


def parse_default_constant(default: str, type_: ColumnType) -> DefaultConstant | None:
    """Return the constant of a DEFAULT (without text for NULL); None if the DEFAULT is computed for each row."""
    try:
        text = get_constant_text(parse_expression(default))
    except UnsupportedExpression:
        return None
    if text is not None and type_ == "integer" and not _match_integer(text):
        return None  # PostgreSQL rounds 1.5 for an integer
    return DefaultConstant(text)


def get_constant_text(node: ExpressionNode) -> str | None:
    """Return the text of a constant; UnsupportedExpression for any other node."""
    if node.kind == "constant":
        return node.value
    (inner,) = node.parts if node.kind == "cast" else (None,)
    if inner is None or (node.value or "").endswith("(…)"):
        raise UnsupportedExpression
    # The first cast sets the type of a literal; a second cast can change the value.
    if inner.kind == "constant" or _is_lossless_cast(inner.value, node.value):
        return get_constant_text(inner)
    raise UnsupportedExpression


def _is_lossless_cast(source: str | None, target: str | None) -> bool:
    return any(source in family and target in family for family in (TEXT_SQL_TYPES, NUMERIC_SQL_TYPES))
