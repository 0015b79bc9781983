"""CHECK constraints become rules of fields if the translation is exact; PostgreSQL checks the others."""

import re

import pytest

from support import rows
from tables.introspect import look_at
from tables.unusual_tables import assert_checks_are_read
from tidemill.store.database import Database
from tidemill.tables.introspection.check_constraints import translate_regex
from tidemill.tables.introspection.sql_expressions import UnsupportedExpression


async def test_check_constraint_in_any_supported_form_becomes_field_rule(db: Database) -> None:
    await assert_checks_are_read(db)


async def test_check_constraint_is_inherited_and_ignored_when_not_enforced(db: Database) -> None:
    child = await look_at(
        db,
        "child",
        "CREATE TABLE parent (a integer CHECK (a > 0), b integer CONSTRAINT only_here CHECK (b > 0) NO INHERIT)",
        "CREATE TABLE child (c integer CHECK (c < 9)) INHERITS (parent)",
        "ALTER TABLE child ADD CHECK (c > 3) NOT VALID",
    )
    assert [(field.minimum, field.maximum) for field in child.fields] == [("1", None), (None, None), ("4", "8")]
    await rows(db, "ALTER TABLE child ADD CHECK (b > 7) NOT ENFORCED")
    assert await look_at(db, "child") == child


REGEXES = [
    r"^[a-z0-9]+(-[a-z0-9]+)*$",
    r"^[^@]+@[^@]+$",
    r"^[^\s@]+@[^\s@]+\.[^\s@]+$",
    r"^[A-Za-z0-9._%+-]+@([a-z-]+\.)+[A-Za-z]{2,}$",
    r"^.+@.+$",
    r"^\d{3}-?\d{2}$",
    r"^\w+\s?\S*$",
    r"^[[:alpha:]_][[:alnum:]]*$",
    r"^(?:ab|cd)?x{2,3}$",
    r"b.b",
    r"^a",
    r"b$",
    r"^[]^-]$",
    r"^[-+]?\d$",
    r"",
]
VALUES = [
    *["a", "ab", "a-b", "a--b", "b-b", "a@b", "a@b.de", "@", "12345", "123-45", "xx", "abxxx", "ÄB", "ä@ü.de", "é"],
    *["K", "+5", "-5", "A-B", "A@B.DE", "ABXX", "_x1", "]", "^", "-"],
    *[
        "",
        "ab@c\n",
        "a\nb",
        "b\nb",
        "\n",
        "b\tb",
        "a b",
        "a\u00a0b",
        "a\u2028b",
        "\uff11\uff12\uff13\uff14\uff15",
        "\u017f",
    ],
    *["a" * 400, "a@" + "b" * 400],
]


async def test_translated_regex_never_rejects_value_the_server_accepts(db: Database) -> None:
    """The translation also rejects values that PostgreSQL rejects, for ASCII values on one line."""
    refused = 0
    for operator in ("~", "~*"):
        for regex in REGEXES:
            try:
                matches = re.compile(translate_regex(regex, ignore_case=operator == "~*")).fullmatch
            except UnsupportedExpression:
                assert regex == r"^[]^-]$"
                continue
            query = f"SELECT v, v {operator} %s FROM unnest(%s::text[]) AS u (v)"
            for value, taken in await rows(db, query, regex, VALUES):
                assert matches(value) or not taken, (regex, value)
                refused += not taken and not matches(value)
                plain = value.isascii() and "\n" not in value and len(value) < 300
                assert not plain or bool(matches(value)) == taken, (regex, value)
    assert refused > 300


@pytest.mark.parametrize(
    "regex",
    [
        *[r"^(a+)+$", r"^(a|aa)*$", r"^(a?)*$", r"^([a-z]+)*b$", r"(.*)(.*)x", r"*a", r"a{2", r"a)", r"[a-c-e]"],
        *[
            r"\mword",
            r"(?i)a",
            r"***=a",
            r"(a)\1",
            r"a(?=b)",
            r"[[:punct:]]",
            r"[[.hyphen.]]",
            r"\x41",
            r"^\D$",
            r"[\n]",
        ],
        *[r"^a|b$", r"a^b"],
    ],
)
def test_translate_regex_raises_for_backtracking_or_untranslatable_regex(regex: str) -> None:
    with pytest.raises(UnsupportedExpression):
        translate_regex(regex)


async def test_check_constraint_regex_becomes_pattern_with_description(db: Database) -> None:
    checks = r"slug varchar(9) CHECK (slug ~* '^[a-z]+$'), bad text CHECK (bad ~ '(.)\1'), no text CHECK (no !~ 'x')"
    slug, bad, no = (await look_at(db, "t", f"CREATE TABLE t ({checks})")).fields
    assert slug.pattern is not None
    assert re.fullmatch(slug.pattern, "ABC")
    assert not re.fullmatch(slug.pattern, "a1")
    assert slug.pattern_says == "a match for ^[a-z]+$"
    assert (bad.pattern, no.pattern) == (None, None)


async def test_check_constraint_beyond_what_python_can_compute_is_left_to_the_server(db: Database) -> None:
    """Sums of many terms are nested deeply; dates and numbers of PostgreSQL exceed those of Python."""
    definitions = [
        f"a integer CHECK (a > 0) CHECK ({' + '.join(['a'] * 1_500)} > 0)",
        f"b integer DEFAULT ({' + '.join(['1'] * 1_500)}) CHECK (b < 1{'0' * 5_000})",
        "c date CHECK (c > '9999-12-31') CHECK (c < '20000-01-01')",
        "d date CHECK (d < '0001-01-01')",
        f"e text CHECK (length(e) < 1{'0' * 5_000})",
        f"f text CHECK (f = 'x'{'::text::varchar' * 1_000})",
    ]
    fields = (await look_at(db, "t", f"CREATE TABLE t ({', '.join(definitions)})")).fields
    assert [(field.minimum, field.maximum, field.max_length) for field in fields] == [("1", None, None)] + 5 * [
        (None, None, None)
    ]
