"""Rules on texts of one field: each tells where it is broken, and how."""

from collections.abc import Callable
from decimal import Decimal

from tidemill.domain.resource import Field
from tidemill.domain.values.columns import Texts, mismatches

Broken = list[tuple[int, str, str]]
"""Index, code, reason."""
Rule = Callable[[Texts], Broken]


def rules_of(field: Field) -> list[Rule]:
    rules = []
    if field.enum:
        rules.append(_enum(field.enum))
    if field.pattern is not None:
        rules.append(_pattern(field.pattern, field.pattern_says))
    if field.min_length is not None or field.max_length is not None:
        rules.append(_length(field.min_length or 0, field.max_length))
    if field.max_words is not None:
        rules.append(_words(field.max_words))
    if field.minimum is not None or field.maximum is not None:
        rules.append(_range(field))
    return rules


def _enum(values: tuple[str, ...]) -> Rule:
    allowed = frozenset((*values, None))
    says = "not one of " + ", ".join(values)

    def rule(texts: Texts) -> Broken:
        if allowed.issuperset(texts):
            return []
        return [(index, "enum", says) for index, text in enumerate(texts) if text not in allowed]

    return rule


def _pattern(pattern: str, says: str | None) -> Rule:
    reason = f"not {says}" if says else f"does not match {pattern}"

    def rule(texts: Texts) -> Broken:
        return [(index, "pattern", reason) for index in mismatches(pattern, texts)]

    return rule


def _length(low: int, high: int | None) -> Rule:
    def rule(texts: Texts) -> Broken:
        lengths = [low if text is None else len(text) for text in texts] if None in texts else list(map(len, texts))  # type: ignore[arg-type]
        broken = []
        if high is not None and max(lengths, default=0) > high:
            says = f"longer than {high} characters"
            broken = [(index, "too_long", says) for index, length in enumerate(lengths) if length > high]
        if min(lengths, default=low) < low:
            says = f"shorter than {low} characters"
            broken += [(index, "too_short", says) for index, length in enumerate(lengths) if length < low]
        return broken

    return rule


def _words(high: int) -> Rule:
    def rule(texts: Texts) -> Broken:
        # A word takes two characters at least, with the space before it: short texts need no counting.
        long = [(index, text) for index, text in enumerate(texts) if text is not None and len(text) >= 2 * high]
        return [
            (index, "too_many_words", f"more than {high} words") for index, text in long if len(text.split()) > high
        ]

    return rule


def _range(field: Field) -> Rule:
    """Numbers by their value; dates and times by their text, which ISO 8601 has in the same order."""
    of: Callable[[str], Decimal | str] = Decimal if field.type in ("integer", "number") else str
    low = None if field.minimum is None else of(field.minimum)
    high = None if field.maximum is None else of(field.maximum)

    def rule(texts: Texts) -> Broken:
        broken = []
        for index, text in enumerate(texts):
            if text is None:
                continue
            value = of(text)
            if low is not None and value < low:  # type: ignore[operator]
                broken.append((index, "too_small", f"less than {low}"))
            elif high is not None and value > high:  # type: ignore[operator]
                broken.append((index, "too_large", f"more than {high}"))
        return broken

    return rule
