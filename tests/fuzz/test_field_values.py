"""Values of fields, CHECK expressions and regular expressions: the same alone and in a column, and bounded work."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from types import FrameType
from typing import Any

from hypothesis import strategies as st

from fuzz.mutations import any_json, mutated_text
from fuzz.targets import fuzz
from imports.test_field_reader import ANY, TYPES
from tidemill.core.file_format import FORMULA_PATTERN, ColumnType, escape_formula, unescape_formula
from tidemill.core.json_input import MAX_JSON_DEPTH, is_json_too_deep
from tidemill.imports.format_detection import detect_formats
from tidemill.imports.validation.canonical_values import canonicalize_texts
from tidemill.imports.validation.field_reader import FieldReader
from tidemill.store.jsonb import decode_input_or_text, encode_json
from tidemill.tables.introspection.catalog_columns import CatalogColumn, build_field
from tidemill.tables.introspection.check_constraints import is_fully_translated, parse_check_rules, translate_regex
from tidemill.tables.introspection.sql_expressions import UnsupportedExpression
from tidemill.tables.resource import Field
from tidemill.tables.values.value_formats import KINDS_BY_TYPE, VALUE_FORMATS, get_value_format

EXTREME = st.sampled_from(
    [
        *(
            "1e99999999999999999999",
            "-1e-9999999999",
            "[1e99999999999999999999]",
            '{"a": -1e-99999999999999999}',
            "9" * 5_000,
        ),
        *(
            "0001-01-01T00:00:00+14:00",
            "9999-12-31T23:59:59-15:59",
            "4714-01-01 BC",
            "24:00:00.1",
            "\\x0",
            "{[",
            "[1:9]={}",
            "٣",
        ),
    ]
)
LISTS = any_json().map(repr) | st.lists(EXTREME | ANY, max_size=3).map(lambda parts: "[" + ",".join(parts) + "]")
CPU_LIMIT_S = 5.0  # of processor time; a match takes less than a millisecond


@contextmanager
def cpu_limit() -> Iterator[None]:
    """Raise TimeoutError if the block takes too much processor time."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError("too much processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


_NUMBER = r"[-+(]?[$\u20ac]? ?[0-9]{1,3}([.,' ][0-9]{3}){0,2}([.,][0-9]{0,3})?[)%-]?"
_DAY = r"[0-9]{1,4}([./-]| )([0-9]{1,2}|M\u00e4r|Dec\.)([./-]| )[0-9]{1,4}( [0-9]{1,2}:[0-9]{2})?"
FORMATTED = st.from_regex(_NUMBER, fullmatch=True) | st.from_regex(_DAY, fullmatch=True)


@fuzz(
    examples=150,
    name=st.sampled_from(list(VALUE_FORMATS)),
    texts=st.lists(FORMATTED | ANY | EXTREME | st.none(), max_size=6),
)
def test_format_converts_value_alone_as_in_column(name: str, texts: list[str | None]) -> None:
    value_format = get_value_format(name)
    type_: ColumnType = next(one for one, kind in KINDS_BY_TYPE.items() if value_format.kind in (kind, "text"))
    reader = FieldReader(Field(name="f", column="f", type=type_, sql_type="numeric"), value_format=value_format)
    with cpu_limit():
        together, errors = reader.validate_and_convert_values(list(texts))
        for at, text in enumerate(texts):
            (alone,), wrong = reader.validate_and_convert_values([text])
            assert (at in errors.bad_rows) == bool(wrong.bad_rows)
            assert together[at] == alone or Decimal(together[at] or 0) == Decimal(alone or 0)
        detect_formats({"f": Field(name="f", column="f", type=type_)}, [{"f": text} for text in texts])


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Field, list[str | None]]:
    kind, sql_type, rules, texts = draw(st.sampled_from(TYPES))
    field = Field(name="f", column="f", type=kind, sql_type=sql_type, **rules)
    return field, draw(st.lists(texts | EXTREME | LISTS | st.none(), max_size=6))


@fuzz(examples=150, typed=typed_values())
def test_value_is_read_alone_as_in_a_column(typed: tuple[Field, list[str | None]]) -> None:
    field, values = typed
    reader = FieldReader(field)
    texts, flaws = reader.validate_and_convert_values(list(values))
    alone = [reader.validate_and_convert_values([value]) for value in values]
    assert texts == [found[0] for found, _ in alone]
    assert flaws.bad_rows == {index for index, (_, wrong) in enumerate(alone) if wrong.bad_rows}
    for details in flaws.build_details_by_row().values():
        assert len(str(details)) < 20_000
    canonicalize_texts(field, texts)


@fuzz(text=st.text(max_size=8) | mutated_text(["=1+1", "'=1", "''@x", "\t-1", "\uff1dx"], fragments=["'", "=", "\n"]))
def test_escaped_formula_is_never_a_formula_and_is_reversible(text: str) -> None:
    escaped = escape_formula(text)
    assert unescape_formula(escaped) == text
    assert re.match("[=+@\t\r\n\uff1d\uff0b\uff20\uff0d-]", escaped) is None
    assert bool(re.match(FORMULA_PATTERN, text)) == (escaped != text)


def wrap(depth: int) -> Any:
    value: Any = '[{\\"'
    for level in range(depth):
        value = [value] if level % 2 else {"[": value}
    return value


@fuzz(depth=st.integers(0, MAX_JSON_DEPTH + 60), value=any_json())
def test_json_depth_is_counted_as_python_counts_it(depth: int, value: Any) -> None:
    text = encode_json(wrap(depth)) if depth <= MAX_JSON_DEPTH else b"[" * depth + b'"["' + b"]" * depth
    assert is_json_too_deep(text) == (depth > MAX_JSON_DEPTH)
    try:
        stored = encode_json(value)
    except (ValueError, TypeError, UnicodeEncodeError):
        return
    assert decode_input_or_text(stored.decode()) is not None or value is None


def column(name: str, base: str, **more: Any) -> CatalogColumn:
    known: dict[str, Any] = {
        "typmod": -1, "labels": (), "element": None, "default": None, "not_null": False, "domain_not_null": False,
        "identity": "", "generated": False, "deterministic": True,
    }  # fmt: skip
    return CatalogColumn(name=name, sql_type=base, base=base, **(known | more))


COLUMNS = {name: column(name, base) for name, base in (("a", "int4"), ("b", "text"), ("c", "date"), ("d", "numeric"))}
CHECKS = (
    *(
        "((a > 0) AND (a <= 100))",
        "(b ~ '^[a-z]+$'::text)",
        "(c >= '2020-01-01'::date)",
        "((b IS NULL) OR (length(b) < 9))",
    ),
    *(
        "(b = ANY (ARRAY['x'::text, 'y'::text]))",
        "(d = ANY (ARRAY[1, 2.5]))",
        "((b = 'x'::text) OR (b = 'y'::text))",
        "(b <> ''::text)",
    ),
    *("(c > '9999-12-31'::date)", "(d < '1e400'::numeric)", "((a)::numeric >= -1.5)", "(VALUE > 5)", "(1 < a)"),
)
CHECK_FRAGMENTS = [
    *(
        "(",
        ")",
        "'",
        "''",
        "::",
        "AND",
        " OR ",
        "IS NOT NULL",
        "ANY",
        "ARRAY[",
        "]",
        ",",
        "~*",
        "<>",
        '"',
        '"b"',
        "1e99999",
    ),
    *(
        "'x'::date",
        "((",
        "))",
        "(" * 400,
        "::text" * 300,
        "NULL",
        "'infinity'::date",
        "'NaN'::numeric",
        "length(b)",
        ".",
    ),
]


@fuzz(examples=150, check=mutated_text(CHECKS, fragments=CHECK_FRAGMENTS))
def test_any_check_expression_becomes_valid_rules_or_is_skipped(check: str) -> None:
    rules = parse_check_rules(check, COLUMNS)
    is_fully_translated(check, COLUMNS)
    for name, changes in rules:
        assert name in COLUMNS
        FieldReader(Field(name=name, column=name, type="text", **changes)).validate_and_convert_values(["x", None, "1"])
    for base in ("int4", "text", "bool"):
        build_field(column("x", base, default=check))


REGEXES = (
    *(
        r"^[a-z0-9]+(-[a-z0-9]+)*$",
        r"^[^@]+@[^@]+\.[a-z]{2,}$",
        r"^\d{3}-?\d{2}$",
        r"^(?:ab|cd)?x{2,3}$",
        r"^\w+\s?\S*$",
    ),
    *(r"^[[:alpha:]_][[:alnum:]]*$", r"b.b", r"^([a-z]+,)+x", r"(a*b)+", r"^.*-.*-.*$"),
)
REGEX_FRAGMENTS = [
    "(",
    ")",
    "*",
    "+",
    "?",
    "{2,}",
    "{0,300}",
    "[",
    "]",
    "^",
    "$",
    "|",
    ".",
    "\\d",
    "\\",
    "[^a]",
    "-",
    "(?:",
    "a*",
    "{1,999}",
]


@fuzz(
    examples=150,
    regex=mutated_text(REGEXES, fragments=REGEX_FRAGMENTS, most=6),
    ignore_case=st.booleans(),
    text=st.text("ab-1@. \n", max_size=20),
)
def test_translated_regex_matches_long_values_in_bounded_time(regex: str, ignore_case: bool, text: str) -> None:
    try:
        pattern = re.compile(translate_regex(regex, ignore_case=ignore_case))
    except UnsupportedExpression:
        return
    with cpu_limit():
        for value in (
            text,
            "a" * 300,
            "a-" * 150,
            "ab" * 150 + "!",
            "1" * 299 + "x",
            "@" * 300,
            text * 15,
            "a" * 5_000,
        ):
            pattern.fullmatch(value)
            pattern.fullmatch(f"{value}\n")
