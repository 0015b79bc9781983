"""CHECK constraints become rules of fields where that is certain, and are left to the server where it is not."""

import re
from typing import Any

import pytest

from catalog.looks import look_at, rules
from support import rows
from tidemill.domain.catalog.expression import Undecidable
from tidemill.domain.catalog.regex import translated
from tidemill.store.database import Database

CHECKS: list[tuple[str, str, dict[str, Any]]] = [
    ("integer", "{c} > 0", {"minimum": "1"}),
    ("integer", "{c} >= -5", {"minimum": "-5"}),
    ("integer", "0 < {c}", {"minimum": "1"}),
    ("integer", "{c} < 10.5", {"maximum": "10"}),
    ("smallint", "{c} BETWEEN 1 AND 150", {"minimum": "1", "maximum": "150"}),
    ("bigint", "{c} IN (3, 1, 2)", {"minimum": "1", "maximum": "3"}),
    ("integer", "{c} > 0 AND {c} > 5 AND {c} <> 7 AND {c} %% 2 = 0", {"minimum": "6"}),
    ("numeric(10,2)", "{c} > 0", {"above": "0"}),
    ("numeric", "{c} >= 0.5 AND {c} < 1e3", {"minimum": "0.5", "below": "1000"}),
    ("double precision", "{c} <= 1", {"maximum": "1"}),
    ("date", "{c} >= '2000-01-01'", {"minimum": "2000-01-01"}),
    ("date", "{c} < '2000-03-01'", {"maximum": "2000-02-29"}),
    ("text", "{c} IN ('a', 'b,c', 'it''s')", {"enum": ("a", "b,c", "it's")}),
    ("varchar(9)", "{c} IN ('a', 'b')", {"enum": ("a", "b")}),
    ("varchar", "{c}::text = ANY (ARRAY['a', 'b'])", {"enum": ("a", "b")}),
    ("text", "{c} = 'x' OR {c} = 'y' OR {c} = 'x'", {"enum": ("x", "y")}),
    ("text", "{c} = 'x'", {"enum": ("x",)}),
    ("text", "{c} IS NULL OR {c} IN ('a')", {"enum": ("a",)}),
    ("text", "{c} IN ('a', 'b') AND {c} IN ('b', 'c')", {"enum": ("b",)}),
    ("text", "length({c}) <= 9 AND char_length({c}) > 2", {"min_length": 3, "max_length": 9}),
    ("varchar(20)", "character_length({c}) = 5", {"min_length": 5, "max_length": 5}),
    ("text", "{c} <> ''", {"min_length": 1}),
    ("text", "{c} IS NOT NULL", {"nullable": False, "required": True}),
    ("text DEFAULT 'x'", "{c} IS NOT NULL", {"nullable": False, "default": "x"}),
    # What only the server can judge.
    ("integer", "{c} %% 2 = 0", {}),
    ("integer", "{c} IN (1, NULL)", {}),
    ("integer", "{c} > other", {}),
    ("integer", "{c} > 0 OR other > 0", {}),
    ("integer", "NOT ({c} > 0)", {}),
    ("integer", "{c} > length('abc')", {}),
    ("numeric", "{c} <> 'NaN'", {}),
    ("text", "{c} > 'a'", {}),
    ("text", "{c} LIKE 'a%%'", {}),
    ("text", "{c} <> 'x'", {}),
    ("text", "lower({c}) = 'x'", {}),
    ("text", "{c} = 'x' OR length({c}) > 5", {}),
    ("text", "octet_length({c}) < 5", {}),
    ("text", "public.length({c}, 1) < 5", {}),
    ("text", "{c} OPERATOR(public.=) 5", {}),
    ("text", "{c} COLLATE \"C\" = 'x'", {}),
    ("character(3)", "{c} = 'x' AND length({c}) > 1", {}),
    ("timestamptz", "{c} > '2000-01-01'", {}),
    ("date", "{c} > CURRENT_DATE", {}),
    ("jsonb", "{c} ? 'a'", {}),
    ("integer[]", "cardinality({c}) > 0", {}),
    ("boolean", "{c}", {}),
]


async def test_every_form_of_a_check(db: Database) -> None:
    columns = ", ".join(f"c{n} {type_}" for n, (type_, _, _) in enumerate(CHECKS))
    checks = ", ".join(f"CHECK ({text.format(c=f'c{n}')})" for n, (_, text, _) in enumerate(CHECKS))
    resource = await look_at(
        db,
        "odd",
        "CREATE FUNCTION length(text, integer) RETURNS integer IMMUTABLE LANGUAGE sql AS 'SELECT $2'",
        "CREATE FUNCTION same(text, integer) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR public.= (FUNCTION = same, LEFTARG = text, RIGHTARG = integer)",
        f"CREATE TABLE odd ({columns}, other integer, {checks})",
    )
    given = ("bits", "max_length", "precision", "scale", "element", "with_zone")
    for field, (type_, text, wanted) in zip(resource.fields, CHECKS, strict=False):
        found = rules(field, *(name for name in given if name not in wanted))
        assert found == wanted, (type_, text)


async def test_checks_are_inherited_and_not_enforced_ones_are_no_rules(db: Database) -> None:
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


async def test_a_pattern_never_refuses_what_the_server_takes(db: Database) -> None:
    """And refuses what it does not, where the two are known to agree."""
    refused = 0
    for operator in ("~", "~*"):
        for regex in REGEXES:
            try:
                matches = re.compile(translated(regex, ignore_case=operator == "~*")).fullmatch
            except Undecidable:
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
def test_a_pattern_that_may_run_away_or_mean_something_else_is_left_to_the_server(regex: str) -> None:
    with pytest.raises(Undecidable):
        translated(regex)


async def test_a_pattern_of_a_check_says_what_it_wants(db: Database) -> None:
    checks = r"slug varchar(9) CHECK (slug ~* '^[a-z]+$'), bad text CHECK (bad ~ '(.)\1'), no text CHECK (no !~ 'x')"
    slug, bad, no = (await look_at(db, "t", f"CREATE TABLE t ({checks})")).fields
    assert slug.pattern is not None
    assert re.fullmatch(slug.pattern, "ABC")
    assert not re.fullmatch(slug.pattern, "a1")
    assert slug.pattern_says == "a match of ^[a-z]+$"
    assert (bad.pattern, no.pattern) == (None, None)
