"""The language of row rules: computed columns such as ``lower(email)``, and conditions such as ``status = 'deleted'``.

A rule is parsed into a tree of at most ``NODES_MAX`` nodes. It cannot call code: its names are columns and fields, and
its functions are those in ``FUNCTIONS``. Its length is limited, so a rule costs a bounded time per row.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn, TypeAlias

from tidemill.core.errors import InvalidInput, escape_unprintable, format_suggestion
from tidemill.tables.values.column_texts import is_storable_text

RULE_MAX_CHARS, NODES_MAX, DEPTH_MAX = 1_000, 100, 20
NUMBER_MAX_DIGITS = 50  # of a number in a rule
WHOLE_NUMBER_MAX = 10_000  # of an argument that counts characters, parts or digits
COMPUTED_MAX, SKIP_RULES_MAX, CONSTANTS_MAX = 50, 50, 100  # of one import
CONSTANT_MAX_CHARS = CONSTANTS_MAX_CHARS = 10_000  # of one constant, and of all constants of a request
SHOWN_CHARS_MAX = 80  # of a rule in a message


@dataclass(frozen=True, slots=True)
class Literal:
    value: str | Decimal
    at: int  # position in the text of the rule, from 0


@dataclass(frozen=True, slots=True)
class Name:
    """A field, or a column of the file."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    operator: str  # + - * /
    left: "Node"
    right: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str  # = != < <= > >=, contains, starts, ends
    left: "Node"
    right: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Membership:
    value: "Node"
    choices: tuple[Literal, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Emptiness:
    value: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Junction:
    operator: str  # and, or
    parts: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class Negation:
    part: "Node"
    at: int


Node: TypeAlias = Literal | Name | Call | Arithmetic | Comparison | Membership | Emptiness | Junction | Negation
CONDITION_NODES = (Comparison, Membership, Emptiness, Junction, Negation)


@dataclass(frozen=True, slots=True)
class Function:
    """A function: how many arguments it takes, and which of them are whole numbers in the text of the rule."""

    usage: str
    arguments_min: int
    arguments_max: int
    whole_numbers: tuple[int, ...] = ()
    condition: int | None = None  # the argument that is a condition


FUNCTIONS = {
    "concat": Function("concat(value, …)", 1, 20),
    "lower": Function("lower(value)", 1, 1),
    "upper": Function("upper(value)", 1, 1),
    "trim": Function("trim(value)", 1, 1),
    "replace": Function("replace(value, text, new text)", 3, 3),
    "coalesce": Function("coalesce(value, …)", 1, 20),
    "split_part": Function("split_part(value, separator, number)", 3, 3, whole_numbers=(2,)),
    "left": Function("left(value, characters)", 2, 2, whole_numbers=(1,)),
    "right": Function("right(value, characters)", 2, 2, whole_numbers=(1,)),
    "round": Function("round(value, digits)", 2, 2, whole_numbers=(1,)),
    "if": Function("if(condition, value, other value)", 3, 3, condition=0),
    "owner": Function("owner()", 0, 0),
}
_KEYWORDS = frozenset(("and", "or", "not", "in", "is", "empty", "contains", "starts", "ends", "with", "true", "false"))
_COMPARISONS = {"=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_match_token = re.compile(
    r"(?P<blank>\s+)|(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<text>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")*\")"
    r"|(?P<word>[^\W\d]\w*)|(?P<sign><=|>=|!=|<>|[=<>+\-*/(),])"
).match


@dataclass(frozen=True, slots=True)
class _Token:
    type: str  # number, text, quoted, word, sign, end
    text: str
    at: int

    @property
    def keyword(self) -> str:
        """The keyword or the sign; empty for other tokens."""
        folded = self.text.lower()
        return self.text if self.type == "sign" else folded if self.type == "word" and folded in _KEYWORDS else ""


@dataclass(frozen=True, slots=True)
class RowRule:
    """A parsed rule. ``names`` are the fields and columns that it reads, with their first position."""

    text: str
    node: Node
    names: dict[str, int]
    uses_owner: bool = False

    @property
    def is_condition(self) -> bool:
        return isinstance(self.node, CONDITION_NODES)


def parse_computed_rule(text: str) -> RowRule:
    """Return the parsed expression of a computed column. A condition computes true or false.

    Raises:
        InvalidInput: The expression is invalid. The message names the position and what was expected.
    """
    return _Parser(text, "expression").parse()


def parse_skip_rule(text: str) -> RowRule:
    """Return the parsed condition of rows to skip.

    Raises:
        InvalidInput: The condition is invalid. The message names the position and what was expected.
    """
    rule = _Parser(text, "condition").parse()
    if not rule.is_condition:
        raise_rule_error("condition", text, rule.node.at, "expected a condition, such as status = 'deleted'")
    return rule


def check_constant_text(text: str) -> str:
    """Return the text of a constant; raise InvalidInput if it is empty, too long or cannot be stored."""
    if not text.strip():
        raise InvalidInput("The value of a constant must not be empty")
    if len(text) > CONSTANT_MAX_CHARS:
        raise InvalidInput(f"The value of a constant has more than {CONSTANT_MAX_CHARS:,} characters")
    if not is_storable_text(text):
        raise InvalidInput("The value of a constant contains a character that PostgreSQL cannot store")
    return text


def raise_rule_error(subject: str, text: str, at: int, problem: str) -> NoReturn:
    """Raise InvalidInput for a position in the text of a rule."""
    shown = escape_unprintable(text[:SHOWN_CHARS_MAX]) + ("…" if len(text) > SHOWN_CHARS_MAX else "")
    raise InvalidInput(f"Invalid {subject} `{shown}`: at character {at + 1}: {problem}")


def iter_nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    yield node
    match node:
        case Call(arguments=parts) | Junction(parts=parts):
            pass
        case Arithmetic(left=left, right=right) | Comparison(left=left, right=right):
            parts = (left, right)
        case Membership(value=part, choices=choices):
            parts = (part, *choices)
        case Emptiness(value=part) | Negation(part=part):
            parts = (part,)
        case _:
            parts = ()
    for part in parts:
        yield from iter_nodes(part)


class _Parser:
    """A recursive descent parser. Each method reads one level of the grammar, from weakly to strongly binding."""

    def __init__(self, text: str, subject: str) -> None:
        self._text, self._subject = text, subject
        self._nodes = self._depth = self._position = 0
        self._tokens: list[_Token] = []

    def parse(self) -> RowRule:
        if len(self._text) > RULE_MAX_CHARS:
            problem = f"the {self._subject} is longer than {RULE_MAX_CHARS:,} characters"
            raise_rule_error(self._subject, self._text, RULE_MAX_CHARS, problem)
        if not is_storable_text(self._text):
            raise InvalidInput(f"Invalid {self._subject}: it contains a character that PostgreSQL cannot store")
        self._tokens = list(self._iter_tokens())
        node = self._parse_disjunction()
        if self._next.type != "end":
            joins = isinstance(node, CONDITION_NODES)
            self._fail(f"expected {'and, or' if joins else 'an operator'} or the end, not {self._describe(self._next)}")
        names: dict[str, int] = {}
        for one in iter_nodes(node):
            if isinstance(one, Name):
                names.setdefault(one.name, one.at)
        uses_owner = any(isinstance(one, Call) and one.function == "owner" for one in iter_nodes(node))
        return RowRule(self._text, node, names, uses_owner)

    def _iter_tokens(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            found = _match_token(self._text, at)
            if found is None:
                what = {"'": "a text without its closing '", '"': 'a name without its closing "'}
                character = self._text[at]
                self._fail(what.get(character, f"unexpected character {escape_unprintable(character)}"), at)
            if found.lastgroup != "blank":
                yield _Token(str(found.lastgroup), found[0], at)
            at = found.end()
        yield _Token("end", "", at)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _take(self, *keywords: str) -> _Token | None:
        """Consume the next token if it is one of these keywords or signs."""
        token = self._next
        if token.keyword and token.keyword in keywords:
            self._position += 1
            return token
        return None

    def _expect(self, *keywords: str, then: str = "") -> _Token:
        token = self._take(*keywords)
        if token is None:
            self._fail(f"expected {' or '.join(keywords)}{then}, not {self._describe(self._next)}")
        return token

    def _add(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            self._fail(f"the {self._subject} has more than {NODES_MAX} parts", node.at)
        return node

    def _parse_disjunction(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._fail(f"the {self._subject} is nested more than {DEPTH_MAX} levels deep")
        node = self._parse_junction("or", self._parse_conjunction)
        self._depth -= 1
        return node

    def _parse_conjunction(self) -> Node:
        return self._parse_junction("and", self._parse_negation)

    def _parse_junction(self, operator: str, parse_part: Callable[[], Node]) -> Node:
        parts = [parse_part()]
        while (token := self._take(operator)) is not None:
            self._require_condition(parts[-1], token)
            parts.append(parse_part())
            self._require_condition(parts[-1], token)
        return parts[0] if len(parts) == 1 else self._add(Junction(operator, tuple(parts), parts[0].at))

    def _parse_negation(self) -> Node:
        negations = []
        while (token := self._take("not")) is not None:
            negations.append(token)
            if len(negations) > DEPTH_MAX:
                self._fail(f"the {self._subject} is nested more than {DEPTH_MAX} levels deep")
        node = self._parse_comparison()
        for token in reversed(negations):
            self._require_condition(node, token)
            node = self._add(Negation(node, token.at))
        return node

    def _parse_comparison(self) -> Node:
        left = self._parse_sum()
        token = self._take(*_COMPARISONS, "contains", "starts", "ends", "in", "is", "not")
        if token is None:
            return left
        self._require_value(left, token.at)
        negation = token if token.keyword == "not" else None
        if negation is not None:
            token = self._expect("contains", "starts", "ends", "in")
        elif token.keyword == "is":
            negation = self._take("not")
        node = self._parse_right_side(left, token)
        return node if negation is None else self._add(Negation(node, left.at))

    def _parse_right_side(self, left: Node, token: _Token) -> Node:
        keyword = token.keyword
        if keyword == "is":
            self._expect("empty")
            return self._add(Emptiness(left, token.at))
        if keyword == "in":
            return self._add(Membership(left, self._parse_choices(), token.at))
        if keyword in ("starts", "ends"):
            self._expect("with")
        right = self._parse_sum()
        self._require_value(right, right.at)
        return self._add(Comparison(_COMPARISONS.get(keyword, keyword), left, right, token.at))

    def _parse_choices(self) -> tuple[Literal, ...]:
        self._expect("(")
        choices = []
        while True:
            choice = self._parse_factor()
            if not isinstance(choice, Literal):
                self._fail("expected a text in quotes or a number", choice.at)
            choices.append(choice)
            if self._expect(",", ")").keyword == ")":
                return tuple(choices)

    def _parse_sum(self) -> Node:
        node = self._parse_product()
        while (token := self._take("+", "-")) is not None:
            node = self._add_arithmetic(token, node, self._parse_product())
        return node

    def _parse_product(self) -> Node:
        node = self._parse_factor()
        while (token := self._take("*", "/")) is not None:
            node = self._add_arithmetic(token, node, self._parse_factor())
        return node

    def _add_arithmetic(self, token: _Token, left: Node, right: Node) -> Node:
        for side in (left, right):
            self._require_value(side, side.at)
            if isinstance(side, Literal) and isinstance(side.value, str):
                self._fail(f"expected a number for {token.text}, not a text. To join texts, use concat", side.at)
        return self._add(Arithmetic(token.text, left, right, token.at))

    def _parse_factor(self) -> Node:
        signs = []
        while (token := self._take("-")) is not None:
            signs.append(token)
            if len(signs) > 1:
                self._fail("expected a value after -")
        node = self._parse_value()
        for token in signs:
            if isinstance(node, Literal) and isinstance(node.value, Decimal):
                node = Literal(-node.value, token.at)
            else:
                node = self._add_arithmetic(token, Literal(Decimal(0), token.at), node)
        return node

    def _parse_value(self) -> Node:
        token = self._next
        if self._take("("):
            node = self._parse_disjunction()
            self._expect(")")
            return node
        if self._take("true", "false"):
            return self._add(Literal(token.keyword, token.at))
        if token.keyword or token.type == "end":
            self._fail(f"expected a value, not {self._describe(token)}")
        self._position += 1
        if token.type == "number":
            if len(token.text) > NUMBER_MAX_DIGITS:
                self._fail(f"the number has more than {NUMBER_MAX_DIGITS} digits", token.at)
            return self._add(Literal(Decimal(token.text), token.at))
        if token.type == "text":
            return self._add(Literal(token.text[1:-1].replace("''", "'"), token.at))
        if token.type == "quoted":
            return self._add(Name(token.text[1:-1].replace('""', '"'), token.at))
        if self._take("("):
            return self._parse_call(token)
        return self._add(Name(token.text, token.at))

    def _parse_call(self, token: _Token) -> Node:
        name = token.text.lower()
        function = FUNCTIONS.get(name)
        if function is None:
            hint = format_suggestion(name, FUNCTIONS) or f". The functions are {', '.join(FUNCTIONS)}"
            self._fail(f"unknown function {token.text}{hint}", token.at)
        arguments: list[Node] = []
        if not self._take(")"):
            while True:
                arguments.append(self._parse_disjunction())
                if self._expect(",", ")").keyword == ")":
                    break
        if not function.arguments_min <= len(arguments) <= function.arguments_max:
            self._fail(f"expected {function.usage}, not {len(arguments)} arguments", token.at)
        for number, argument in enumerate(arguments):
            self._check_argument(function, number, argument)
        return self._add(Call(name, tuple(arguments), token.at))

    def _check_argument(self, function: Function, number: int, argument: Node) -> None:
        if number == function.condition:
            if not isinstance(argument, CONDITION_NODES):
                self._fail(f"expected a condition: {function.usage}", argument.at)
            return
        self._require_value(argument, argument.at)
        if number in function.whole_numbers:
            value = argument.value if isinstance(argument, Literal) else None
            if not isinstance(value, Decimal) or value % 1 or not 0 <= value <= WHOLE_NUMBER_MAX:
                self._fail(f"expected a whole number from 0 to {WHOLE_NUMBER_MAX:,}: {function.usage}", argument.at)

    def _require_condition(self, node: Node, token: _Token) -> None:
        if not isinstance(node, CONDITION_NODES):
            self._fail(f"expected a condition beside {token.text}, such as status = 'deleted'", node.at)

    def _require_value(self, node: Node, at: int) -> None:
        if isinstance(node, CONDITION_NODES):
            self._fail("expected a value, not a condition", at)

    def _describe(self, token: _Token) -> str:
        return "the end" if token.type == "end" else escape_unprintable(token.text[:SHOWN_CHARS_MAX])

    def _fail(self, problem: str, at: int | None = None) -> NoReturn:
        raise_rule_error(self._subject, self._text, self._next.at if at is None else at, problem)
