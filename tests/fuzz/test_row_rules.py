"""Row rules: any text is a rule or a mistake with a short message, and rules compute the same alone and in a column."""

from decimal import Decimal

from hypothesis import strategies as st

from fuzz.mutations import mutated_text
from fuzz.targets import fuzz
from fuzz.test_field_values import EXTREME, cpu_limit
from tidemill.core.errors import InvalidInput, escape_unprintable
from tidemill.imports.validation.field_reader import FieldReader
from tidemill.imports.validation.rule_evaluation import RuleFailure, compile_rule, to_texts
from tidemill.tables.resource import Field
from tidemill.tables.row_rules import FUNCTIONS, parse_computed_rule, parse_skip_rule

FIELDS = {
    "name": None,
    "text": Field(name="text", column="text", type="text"),
    "price": Field(name="price", column="price", type="number"),
    "born": Field(name="born", column="born", type="date"),
    "at": Field(name="at", column="at", type="timestamp"),
}
SIGNS = ["=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "(", ")", ",", "'", '"']
WORDS = ["and", "or", "not", "in", "is", "empty", "contains", "starts", "ends", "with", "true", "'a'", "''", "0", "1.5"]
TOKENS = st.sampled_from([*SIGNS, *WORDS, *(f"{name}(" for name in FUNCTIONS), *FIELDS])
SAMPLES = [
    "concat(text, ' ', name)",
    "if(price >= 9, round(price / 3, 2), coalesce(name, 'x'))",
    "not (born < '2026-01-02' or text in ('a', 2)) and \"text\" is not empty",
]
NAMES = st.sampled_from([*FIELDS, "'x'", "''", "2", "0", "'2026-01-02'", "'9'"])
VALUES = st.recursive(
    NAMES,
    lambda value: st.one_of(
        st.builds("concat({}, {})".format, value, value),
        st.builds("replace({}, {}, {})".format, value, value, value),
        st.builds("coalesce({}, {})".format, value, value),
        st.builds("upper({})".format, value),
        st.builds("split_part({}, {}, 2)".format, value, value),
        st.builds("right({}, 3)".format, value),
        st.builds("round({}, 2)".format, value),
        st.builds("({} {} {})".format, value, st.sampled_from("+-*/"), value),
        st.builds("if({} {} {}, {}, {})".format, value, st.sampled_from(SIGNS[:6]), value, value, value),
    ),
    max_leaves=8,
)
CONDITIONS = st.recursive(
    st.builds("{} {} {}".format, VALUES, st.sampled_from([*SIGNS[:6], "contains", "starts with"]), VALUES)
    | st.builds("{} in ('a', 9, '2026-01-02')".format, VALUES)
    | st.builds("{} is not empty".format, VALUES),
    lambda one: (
        st.builds("({} {} {})".format, one, st.sampled_from(["and", "or"]), one) | st.builds("not {}".format, one)
    ),
    max_leaves=4,
)
NUMBERS = st.decimals(allow_nan=True).map(str) | st.integers().map(str)
CELLS = st.none() | st.text(max_size=20) | NUMBERS | st.dates().map(str) | st.datetimes().map(str) | EXTREME


@fuzz(40, text=mutated_text(SAMPLES) | VALUES | CONDITIONS | st.lists(TOKENS, max_size=40).map(" ".join) | st.text())
def test_text_is_a_rule_or_a_mistake_with_a_short_message(text: str) -> None:
    with cpu_limit():
        for parse in (parse_computed_rule, parse_skip_rule):
            try:
                rule = parse(text)
            except InvalidInput as error:
                assert len(str(error)) < 600
                assert escape_unprintable(str(error)) == str(error)
            else:
                assert rule.text == text


@fuzz(40, text=VALUES | CONDITIONS, column=st.lists(CELLS, min_size=1, max_size=6))
def test_rule_computes_the_same_alone_and_in_a_column(text: str, column: list[str | None]) -> None:
    try:
        rule = parse_computed_rule(text)
        evaluate = compile_rule(rule, {name: FIELDS[name] for name in rule.names})
    except InvalidInput:
        return
    cells = {name: [_to_input(name, cell) for cell in column] for name in FIELDS}
    with cpu_limit():
        together = evaluate(cells, len(column))
        alone = [evaluate({name: [one[at]] for name, one in cells.items()}, 1)[0] for at in range(len(column))]
    assert to_texts(together) == to_texts(alone)
    assert [isinstance(cell, RuleFailure) for cell in together] == [isinstance(cell, RuleFailure) for cell in alone]
    for cell in together:
        assert cell is None or isinstance(cell, str | Decimal | bool | RuleFailure)
        assert not isinstance(cell, Decimal) or len(format(cell, "f")) < 1_000


def _to_input(name: str, cell: str | None) -> str | None:
    """Return a cell as the reader of its field returns it: in the notation of the type, or unreadable."""
    field = FIELDS[name]
    if cell is None or field is None or field.type == "text":
        return cell
    return FieldReader(field).read_rule_inputs([cell])[0][0]
