"""Regular expressions of PostgreSQL that Python reads the same way.

The two differ in what a dot, a class and a case are, and in how they search: PostgreSQL's never runs away, Python's
may. So only plain ones are taken. Values that the two may see differently even then (not ASCII, with line ends, long)
match here, and are left to the server.
"""

import re
from dataclasses import dataclass

from tidemill.domain.catalog.expression import Undecidable

LONG = 300  # characters; beyond, the ways of cutting a value between several repeats are too many to try
MAX_OPEN_ENDED = 3
_ANYTHING = r"[^\n]*"
_SPACE = r" \t\r\f\v"  # and line ends, which are judged apart
_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "lower": "a-z", "upper": "A-Z", "space": _SPACE}
_SHORTHANDS = {"d": _CLASSES["digit"], "w": "a-zA-Z0-9_", "s": _SPACE}
_TOKEN = re.compile(
    r"""(?P<anchor>[\^$])
      | \\(?P<shorthand>[dwsS])
      | \\(?P<escaped>[^a-zA-Z0-9\s])
      | (?P<dot>\.)
      | \[(?P<set>\^?(?:\\.|\[:[a-z]+:\]|[^\[\]\\])+)\]
      | (?P<opening>\((?:\?:)?(?![?*]))
      | (?P<closing>\))
      | (?P<either>\|)
      | (?P<repeat>(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??)
      | (?P<literal>[^\\\[\](){}*+?|.^$])""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(
    r"""(?P<range>[^\\\[\]-]-[^\\\[\]-])
      | \\(?P<shorthand>[dws])
      | \\(?P<escaped>[^a-zA-Z0-9\s])
      | \[:(?P<name>[a-z]+):\]
      | (?P<plain>[^\\\[\]])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _Notes:
    """What a pattern turned out to have."""

    beyond_ascii: bool = False  # something that other scripts may match
    line_ends: bool = False  # something that a line end matches
    open_ended: int = 0


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    python: str


def translated(pattern: str, *, ignore_case: bool = False) -> str:
    """A pattern for ``re.fullmatch`` that refuses nothing the server takes; Undecidable if that is not certain."""
    notes = _Notes(beyond_ascii=ignore_case)
    tokens = _tokens(pattern, notes)
    starts, ends = _is_anchor(tokens[:1], "^"), _is_anchor(tokens[-1:], "$")
    inner = tokens[starts : len(tokens) - ends]
    if any(token.kind == "anchor" for token in inner) or ((starts or ends) and _has_choice(inner)):
        raise Undecidable(pattern)  # ^a|b$ is two patterns, each with one anchor
    notes.open_ended -= _separated_groups(inner)
    body = "".join(token.python for token in inner)
    body = ("" if starts else _ANYTHING) + f"(?:{body})" + ("" if ends else _ANYTHING)
    notes.line_ends |= not (starts and ends)
    notes.open_ended += (not starts) + (not ends)
    if notes.open_ended > MAX_OPEN_ENDED:
        raise Undecidable(pattern)
    whole = "|".join([*_left_to_the_server(notes), f"(?i:{body})" if ignore_case else body])
    try:
        re.compile(whole)
    except re.error:
        raise Undecidable(pattern) from None
    return whole


def _left_to_the_server(notes: _Notes) -> list[str]:
    left = {
        rf"[^\n]{{{LONG + 1},}}": notes.open_ended > 1,
        r"[^\n]*[^\x00-\x7f][^\n]*": notes.beyond_ascii,
        r"(?s:.*\n.*)": notes.line_ends,
    }
    return [alternative for alternative, is_needed in left.items() if is_needed]


def _is_anchor(tokens: list[_Token], text: str) -> bool:
    return [(token.kind, token.text) for token in tokens] == [("anchor", text)]


def _tokens(pattern: str, notes: _Notes) -> list[_Token]:
    tokens, at = [], 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None or found.lastgroup is None:
            raise Undecidable(pattern)
        kind, text = found.lastgroup, found[found.lastgroup]
        tokens.append(_Token(kind, text, _python(kind, text, notes)))
        at = found.end()
    return tokens


def _python(kind: str, text: str, notes: _Notes) -> str:
    match kind:
        case "dot":
            notes.line_ends = True
            return r"[^\n]"
        case "set":
            return _set(text, notes)
        case "shorthand" if text == "S":
            notes.beyond_ascii = True
            return rf"[^\n{_SPACE}]"
        case "shorthand":
            notes.beyond_ascii = True
            notes.line_ends |= text == "s"
            return f"[{_SHORTHANDS[text]}]"
        case "opening":
            return "(?:"
        case "repeat":
            notes.open_ended += _is_open_ended(text)
            return text
        case "escaped" | "literal":
            notes.line_ends |= text == "\n"
            return re.escape(text)
        case _:
            return text


def _is_open_ended(repeat: str) -> bool:
    return repeat[0] in "*+" or ",}" in repeat


def _set(text: str, notes: _Notes) -> str:
    negated = text.startswith("^")
    members, inside, at = [], text.removeprefix("^"), 0
    has_space = False
    while at < len(inside):
        found = _MEMBER.match(inside, at)
        if found is None or (found["plain"] == "-" and 0 < at < len(inside) - 1):
            raise Undecidable(text)
        classes = _SHORTHANDS.get(found["shorthand"] or "") or _CLASSES.get(found["name"] or "")
        if found["name"] and classes is None:
            raise Undecidable(text)
        has_space |= classes == _SPACE
        notes.beyond_ascii |= classes is not None
        first, _, last = (found["range"] or "").partition("-")
        span = f"{re.escape(first)}-{re.escape(last)}"
        members.append(classes or (span if found["range"] else re.escape(found["escaped"] or found["plain"])))
        at = found.end()
    # A line end is not for the pattern to match: whether it is allowed at all, the server says.
    notes.line_ends |= has_space != negated
    return rf"[^\n{''.join(members)}]" if negated else f"[{''.join(members)}]"


def _has_choice(tokens: list[_Token]) -> bool:
    """Whether there is a | outside of all groups."""
    depth = 0
    for token in tokens:
        depth += (token.kind == "opening") - (token.kind == "closing")
        if token.kind == "either" and depth == 0:
            return True
    return False


def _separated_groups(tokens: list[_Token]) -> int:
    """How many groups repeat and have repeats within, but can be cut in one way only: (-[a-z]+)*.

    Of others, as of (a+)+ and (a|ab)*, Python would try every way: Undecidable.
    """
    openings: list[int] = []
    separated = 0
    for at, token in enumerate(tokens):
        if token.kind == "opening":
            openings.append(at)
        elif token.kind == "closing":
            if not openings:
                raise Undecidable
            group = tokens[openings.pop() + 1 : at]
            following = tokens[at + 1 : at + 2]
            if following and following[0].kind == "repeat" and following[0].text[0] != "?":
                separated += _is_separated(group) and _is_open_ended(following[0].text)
    return separated


def _is_separated(group: list[_Token]) -> bool:
    if any(token.kind in ("either", "opening") for token in group):
        raise Undecidable
    varies = any(token.kind == "repeat" for token in group)
    begins = varies and group[1].kind != "repeat" and _separates(group[0], group[1:])
    if varies and not begins and not _separates(group[-1], group[:-1]):
        raise Undecidable
    return varies


def _separates(token: _Token, others: list[_Token]) -> bool:
    """Whether a character stands at the edge of a group that nothing else in it matches."""
    if token.kind not in ("escaped", "literal"):
        return False
    one = [other for other in others if other.kind != "repeat"]
    return not any(re.fullmatch(other.python, token.text) for other in one)
