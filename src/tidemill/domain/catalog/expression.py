"""Expressions as PostgreSQL prints them (``pg_get_expr``): every operator in parentheses, every constant with its type.

Only what CHECK constraints and DEFAULTs are usually made of is understood; the rest is Undecidable.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["column", "constant", "call", "operator", "any", "array", "and", "or", "null", "not null", "cast"]


class Undecidable(Exception):
    """Something that only the server can judge."""


@dataclass(frozen=True, slots=True)
class Node:
    """``value`` is the name of a column, the text of a constant (None for NULL), an operator, a function, a type."""

    kind: Kind
    value: str | None = None
    parts: tuple["Node", ...] = ()


_TOKEN = re.compile(
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


def parse(text: str) -> Node:
    """The tree of an expression."""
    reader = _Reader(text)
    node = reader.expression()
    reader.end()
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at, at, text = 0, 0, text.strip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise Undecidable(text)
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise Undecidable(self._tokens[self._at][1])

    def expression(self) -> Node:
        node = self._operand()
        if self._peek("AND") or self._peek("OR"):
            word = self._next()[1]
            parts = [node, self._operand()]
            while self._take(word):
                parts.append(self._operand())
            return Node("and" if word == "AND" else "or", None, tuple(parts))
        if self._take("IS"):
            negated = self._take("NOT")
            self._expect("NULL")
            return Node("not null" if negated else "null", None, (node,))
        if self._kind() == "operator":
            operator = self._next()[1]
            if self._take("ANY"):
                return Node("any", operator, (node, self._in_parentheses()))
            return Node("operator", operator, (node, self._operand()))
        return node

    def _operand(self) -> Node:
        node = self._primary()
        while self._take("::"):
            node = Node("cast", self._type(), (node,))
        return node

    def _primary(self) -> Node:
        if self._peek("("):
            return self._in_parentheses()
        kind, text = self._next()
        if kind == "text":
            return Node("constant", text[1:-1].replace("''", "'"))
        if kind == "number":
            return Node("constant", text)
        if kind == "quoted":
            return self._named(text[1:-1].replace('""', '"'))
        if kind == "word" and text in ("true", "false"):
            return Node("constant", text)
        if kind == "word" and text == "NULL":
            return Node("constant")
        if kind == "word" and text == "VALUE":  # in a rule of a domain
            return Node("column", text)
        if kind == "word" and text == "ARRAY":
            return Node("array", None, tuple(self._list("[", "]")))
        if kind == "word" and not text.isupper():
            return self._named(text)
        raise Undecidable(text)

    def _named(self, name: str) -> Node:
        """A column, or a function of the server's own: others come with their schema."""
        if self._peek("."):
            raise Undecidable(name)
        if self._peek("("):
            return Node("call", name, tuple(self._list("(", ")")))
        return Node("column", name)

    def _list(self, opening: str, closing: str) -> list[Node]:
        self._expect(opening)
        if self._take(closing):
            return []
        parts = [self.expression()]
        while self._take(","):
            parts.append(self.expression())
        self._expect(closing)
        return parts

    def _in_parentheses(self) -> Node:
        self._expect("(")
        node = self.expression()
        self._expect(")")
        return node

    def _type(self) -> str:
        """``character varying(20)``, ``public.mood``, ``timestamp without time zone``, ``text[]``."""
        words = []
        while self._kind() in ("word", "quoted") and not self._tokens[self._at][1].isupper():
            word = self._next()[1]
            while self._take("."):
                word += "." + self._next()[1]
            words.append(word)
        if self._take("("):
            while not self._take(")"):
                self._next()
            words.append("(…)")  # a length or a precision: it may change the value
        name = " ".join(words)
        while self._take("["):
            self._expect("]")
            name += "[]"
        if not name:
            raise Undecidable("a type without a name")
        return name

    def _kind(self) -> str | None:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else None

    def _peek(self, text: str) -> bool:
        kind = self._kind()
        return kind not in (None, "text", "quoted") and self._tokens[self._at][1] == text

    def _take(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise Undecidable(f"{text} is missing")

    def _next(self) -> tuple[str, str]:
        if self._kind() is None:
            raise Undecidable("it ends too soon")
        self._at += 1
        return self._tokens[self._at - 1]
