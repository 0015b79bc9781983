"""Checks the texts of one field against its rules."""

import operator
from collections.abc import Callable

from tidemill.imports.validation.canonical_values import make_comparable_parser
from tidemill.tables.resource import Field
from tidemill.tables.values.column_texts import ColumnTexts, find_indexes_not_matching

RuleViolations = list[tuple[str, str, list[int]]]
"""Error code, reason and row indexes."""
RuleCheck = Callable[[ColumnTexts], RuleViolations]


def build_rule_checks(field: Field) -> list[RuleCheck]:
    rules = []
    if field.enum:
        rules.append(_build_enum_check(field.enum))
    if field.pattern is not None:
        rules.append(_build_pattern_check(field.pattern, field.pattern_says))
    if field.min_length is not None or field.max_length is not None:
        rules.append(_build_length_check(field.min_length or 0, field.max_length))
    if field.max_words is not None:
        rules.append(_build_word_count_check(field.max_words))
    if any(bound is not None for bound in (field.minimum, field.above, field.maximum, field.below)):
        rules.append(_build_range_check(field))
    return rules


def _build_enum_check(values: tuple[str, ...]) -> RuleCheck:
    allowed = frozenset((*values, None))
    reason = "must be one of " + ", ".join(f'"{value}"' for value in values)

    def find_violations(texts: ColumnTexts) -> RuleViolations:
        if allowed.issuperset(texts):
            return []
        return [("enum", reason, [index for index, text in enumerate(texts) if text not in allowed])]

    return find_violations


def _build_pattern_check(pattern: str, says: str | None) -> RuleCheck:
    reason = f"must be {says}" if says else f"must match {pattern}"

    def find_violations(texts: ColumnTexts) -> RuleViolations:
        return [("pattern", reason, find_indexes_not_matching(pattern, texts))]

    return find_violations


def _build_length_check(low: int, high: int | None) -> RuleCheck:
    def find_violations(texts: ColumnTexts) -> RuleViolations:
        lengths = [low if text is None else len(text) for text in texts] if None in texts else list(map(len, texts))  # type: ignore[arg-type]
        broken: RuleViolations = []
        if high is not None and max(lengths, default=0) > high:
            long = [index for index, length in enumerate(lengths) if length > high]
            broken.append(("too_long", f"must have at most {high} characters", long))
        if min(lengths, default=low) < low:
            short = [index for index, length in enumerate(lengths) if length < low]
            broken.append(("too_short", f"must have at least {low} characters", short))
        return broken

    return find_violations


def _build_word_count_check(high: int) -> RuleCheck:
    def find_violations(texts: ColumnTexts) -> RuleViolations:
        # A word and the space before it have at least two characters, so short texts need no counting.
        long = [(index, text) for index, text in enumerate(texts) if text is not None and len(text) >= 2 * high]
        return [
            (
                "too_many_words",
                f"must have at most {high} words",
                [index for index, text in long if len(text.split()) > high],
            )
        ]

    return find_violations


def _build_range_check(field: Field) -> RuleCheck:
    """Compare values, not texts."""
    of = make_comparable_parser(field)
    bounds = [
        (of(bound), fails, code, f"{says} {bound}")
        for bound, fails, code, says in (
            (field.minimum, operator.lt, "too_small", "must be at least"),
            (field.above, operator.le, "too_small", "must be greater than"),
            (field.maximum, operator.gt, "too_large", "must be at most"),
            (field.below, operator.ge, "too_large", "must be less than"),
        )
        if bound is not None
    ]

    def find_violations(texts: ColumnTexts) -> RuleViolations:
        values = [None if text is None else of(text) for text in texts]
        return [
            (code, says, [index for index, value in enumerate(values) if value is not None and fails(value, bound)])
            for bound, fails, code, says in bounds
        ]

    return find_violations
