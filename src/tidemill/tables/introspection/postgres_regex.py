"""Translates regular expressions of PostgreSQL to Python, if both match the same texts.

The two differ in the meaning of dots, classes and case, and Python can backtrack exponentially. So only simple
expressions are translated. Values that the two may still treat differently (non-ASCII, with line ends, long) match
here, and PostgreSQL decides.
"""

import re
from dataclasses import dataclass

from tidemill.tables.introspection.sql_expressions import UnsupportedExpression

CHECKED_VALUE_MAX_CHARS = 300  # longer values with several repeats take too long to match
MAX_OPEN_ENDED_REPEATS = 3
_ANY_TEXT_PATTERN = r"[^\n]*"
_WHITESPACE_CHARS = r" \t\r\f\v"  # line ends are handled separately
_POSIX_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "space": _WHITESPACE_CHARS,
}
_SHORTHAND_CLASSES = {"d": _POSIX_CLASSES["digit"], "w": "a-zA-Z0-9_", "s": _WHITESPACE_CHARS}
_REGEX_TOKEN = re.compile(
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
_SET_MEMBER = re.compile(
    r"""(?P<range>[^\\\[\]-]-[^\\\[\]-])
      | \\(?P<shorthand>[dws])
      | \\(?P<escaped>[^a-zA-Z0-9\s])
      | \[:(?P<name>[a-z]+):\]
      | (?P<plain>[^\\\[\]])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _PatternTraits:
    """Properties of a pattern that are collected during its translation."""

    matches_non_ascii: bool = False
    matches_line_ends: bool = False
    open_ended_repeats: int = 0


@dataclass(frozen=True, slots=True)
class _RegexToken:
    kind: str
    text: str
    python: str


def translate_regex(pattern: str, *, ignore_case: bool = False) -> str:
    """Return a pattern for ``re.fullmatch`` that matches every value that PostgreSQL accepts.

    Raises:
        UnsupportedExpression: The translation may not be exact.
    """
    notes = _PatternTraits(matches_non_ascii=ignore_case)
    tokens = _tokenize_and_translate(pattern, notes)
    starts, ends = _is_anchor(tokens[:1], "^"), _is_anchor(tokens[-1:], "$")
    inner = tokens[starts : len(tokens) - ends]
    if any(token.kind == "anchor" for token in inner) or ((starts or ends) and _has_top_level_alternation(inner)):
        raise UnsupportedExpression(pattern)  # ^a|b$ is two patterns, each with one anchor
    notes.open_ended_repeats -= _count_safe_nested_repeats(inner)
    body = "".join(token.python for token in inner)
    body = ("" if starts else _ANY_TEXT_PATTERN) + f"(?:{body})" + ("" if ends else _ANY_TEXT_PATTERN)
    notes.matches_line_ends |= not (starts and ends)
    notes.open_ended_repeats += (not starts) + (not ends)
    if notes.open_ended_repeats > MAX_OPEN_ENDED_REPEATS:
        raise UnsupportedExpression(pattern)
    whole = "|".join([*_list_server_checked_alternatives(notes), f"(?i:{body})" if ignore_case else body])
    try:
        re.compile(whole)
    except re.error:
        raise UnsupportedExpression(pattern) from None
    return whole


def _list_server_checked_alternatives(notes: _PatternTraits) -> list[str]:
    left = {
        rf"[^\n]{{{CHECKED_VALUE_MAX_CHARS + 1},}}": notes.open_ended_repeats > 1,
        r"[^\n]*[^\x00-\x7f][^\n]*": notes.matches_non_ascii,
        r"(?s:.*\n.*)": notes.matches_line_ends,
    }
    return [alternative for alternative, is_needed in left.items() if is_needed]


def _is_anchor(tokens: list[_RegexToken], text: str) -> bool:
    return [(token.kind, token.text) for token in tokens] == [("anchor", text)]


def _tokenize_and_translate(pattern: str, notes: _PatternTraits) -> list[_RegexToken]:
    tokens, at = [], 0
    while at < len(pattern):
        found = _REGEX_TOKEN.match(pattern, at)
        if found is None or found.lastgroup is None:
            raise UnsupportedExpression(pattern)
        kind, text = found.lastgroup, found[found.lastgroup]
        tokens.append(_RegexToken(kind, text, _translate_token(kind, text, notes)))
        at = found.end()
    return tokens


def _translate_token(kind: str, text: str, notes: _PatternTraits) -> str:
    match kind:
        case "dot":
            notes.matches_line_ends = True
            return r"[^\n]"
        case "set":
            return _translate_set(text, notes)
        case "shorthand" if text == "S":
            notes.matches_non_ascii = True
            return rf"[^\n{_WHITESPACE_CHARS}]"
        case "shorthand":
            notes.matches_non_ascii = True
            notes.matches_line_ends |= text == "s"
            return f"[{_SHORTHAND_CLASSES[text]}]"
        case "opening":
            return "(?:"
        case "repeat":
            notes.open_ended_repeats += _is_open_ended_repeat(text)
            return text
        case "escaped" | "literal":
            notes.matches_line_ends |= text == "\n"
            return re.escape(text)
        case _:
            return text


def _is_open_ended_repeat(repeat: str) -> bool:
    return repeat[0] in "*+" or ",}" in repeat


def _translate_set(text: str, notes: _PatternTraits) -> str:
    negated = text.startswith("^")
    members, inside, at = [], text.removeprefix("^"), 0
    has_space = False
    while at < len(inside):
        found = _SET_MEMBER.match(inside, at)
        if found is None or (found["plain"] == "-" and 0 < at < len(inside) - 1):
            raise UnsupportedExpression(text)
        classes = _SHORTHAND_CLASSES.get(found["shorthand"] or "") or _POSIX_CLASSES.get(found["name"] or "")
        if found["name"] and classes is None:
            raise UnsupportedExpression(text)
        has_space |= classes == _WHITESPACE_CHARS
        notes.matches_non_ascii |= classes is not None
        first, _, last = (found["range"] or "").partition("-")
        span = f"{re.escape(first)}-{re.escape(last)}"
        members.append(classes or (span if found["range"] else re.escape(found["escaped"] or found["plain"])))
        at = found.end()
    # The pattern never matches line ends; PostgreSQL decides on values that contain them.
    notes.matches_line_ends |= has_space != negated
    return rf"[^\n{''.join(members)}]" if negated else f"[{''.join(members)}]"


def _has_top_level_alternation(tokens: list[_RegexToken]) -> bool:
    """Return whether there is a | outside all groups."""
    depth = 0
    for token in tokens:
        depth += (token.kind == "opening") - (token.kind == "closing")
        if token.kind == "either" and depth == 0:
            return True
    return False


def _count_safe_nested_repeats(tokens: list[_RegexToken]) -> int:
    """Count the repeated groups that contain repeats but have a separator, such as (-[a-z]+)*.

    Raises:
        UnsupportedExpression: For groups that can backtrack exponentially, such as (a+)+ and (a|ab)*.
    """
    openings: list[int] = []
    separated = 0
    for at, token in enumerate(tokens):
        if token.kind == "opening":
            openings.append(at)
        elif token.kind == "closing":
            if not openings:
                raise UnsupportedExpression
            group = tokens[openings.pop() + 1 : at]
            following = tokens[at + 1 : at + 2]
            if following and following[0].kind == "repeat" and following[0].text[0] != "?":
                separated += _has_repeat_or_raise_if_unsafe(group) and _is_open_ended_repeat(following[0].text)
    return separated


def _has_repeat_or_raise_if_unsafe(group: list[_RegexToken]) -> bool:
    if any(token.kind in ("either", "opening") for token in group):
        raise UnsupportedExpression
    varies = any(token.kind == "repeat" for token in group)
    begins = varies and group[1].kind != "repeat" and _is_separator(group[0], group[1:])
    if varies and not begins and not _is_separator(group[-1], group[:-1]):
        raise UnsupportedExpression
    return varies


def _is_separator(token: _RegexToken, others: list[_RegexToken]) -> bool:
    """Return whether a token is a character that no other token of its group matches."""
    if token.kind not in ("escaped", "literal"):
        return False
    one = [other for other in others if other.kind != "repeat"]
    return not any(re.fullmatch(other.python, token.text) for other in one)
