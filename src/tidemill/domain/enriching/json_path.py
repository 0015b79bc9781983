"""A small, exact part of JSONPath (RFC 9535): names, places in a list, and all of a list or of an object.

``$.offers[0].price``, ``$['odd name'][-1]``, ``$.offers[*].price``. There are no filters and no ``..``: whoever needs
them writes a handler.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

LONGEST, DEEPEST, MOST = 500, 32, 1_000
ALL: Final[None] = None  # the step that means every one
_STEP = re.compile(
    r"""\.(?P<name>[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff-]*)
    |\[(?P<place>-?(?:0|[1-9][0-9]{0,8}))\]
    |\['(?P<single>(?:[^'\\]|\\['\\])*)'\]
    |\["(?P<double>(?:[^"\\]|\\["\\])*)"\]
    |(?P<all>\[\*\]|\.\*)""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class JsonPath:
    """``steps`` are names, places, or ALL."""

    steps: tuple[str | int | None, ...]

    @classmethod
    def parse(cls, text: str) -> "JsonPath":
        """ValueError says what cannot be read."""
        if not text.startswith("$"):
            raise ValueError(f"{text[:50]!r}: a path begins with $, as in $.offers[0].price")
        if len(text) > LONGEST:
            raise ValueError(f"a path has at most {LONGEST} characters")
        steps: list[str | int | None] = []
        at = 1
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None:
                raise ValueError(
                    f"{text[:50]!r}: {text[at : at + 20]!r} is not understood; .name, ['name'], [0], [*] are"
                )
            steps.append(_step(found))
            at = found.end()
        if len(steps) > DEEPEST:
            raise ValueError(f"a path has at most {DEEPEST} steps")
        return cls(tuple(steps))

    def find(self, document: Any) -> Any:
        """What is there, or None; with ALL in the path, a list of what is there."""
        found = [document]
        for step in self.steps:
            found = [inner for value in found for inner in _into(value, step)][:MOST]
        if ALL in self.steps:
            return found
        return found[0] if found else None


def _step(found: "re.Match[str]") -> str | int | None:
    if found["all"]:
        return ALL
    if found["place"]:
        return int(found["place"])
    if found["name"]:
        return found["name"]
    quoted = found["single"] if found["single"] is not None else found["double"]
    return _ESCAPED.sub(r"\1", quoted)


def _into(value: Any, step: str | int | None) -> list[Any]:
    if step is ALL:
        return value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    if isinstance(step, int):
        inside = isinstance(value, list) and -len(value) <= step < len(value)
        return [value[step]] if inside else []
    found = value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
    return [] if found is _MISSING else [found]
