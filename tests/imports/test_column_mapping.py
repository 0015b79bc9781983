"""The mapping of columns to fields."""

import time

from tidemill.imports.column_mapping import COLUMN_SUGGESTIONS_MAX, map_columns
from tidemill.imports.fixed_rows import FixedRowMatcher, FixProblems
from tidemill.tables.resource import Field, Resource, TableName


def resource(*names: str) -> Resource:
    fields = tuple(Field(name=name, column=name, type="text") for name in names)
    return Resource(name="t", table=TableName("public", "t"), fields=fields)


def test_explicit_mapping_wins_and_other_columns_map_by_folded_name() -> None:
    found = map_columns(
        ["E-Mail", "Full  Name", "x", "_row", "note"], resource("email", "full_name", "y"), {"x": "y", "note": ""}
    )
    assert found.mapping == {"E-Mail": "email", "Full  Name": "full_name", "x": "y"}
    assert (found.unknown, found.missing, found.problems) == ([], [], [])


def test_columns_named_only_with_punctuation_map_exactly() -> None:
    found = map_columns(["%%", "$$"], resource("$$", "n"))
    assert (found.mapping, found.unknown) == ({"$$": "$$"}, ["%%"])


def test_column_with_alias_of_field_maps_to_it_unless_a_field_has_that_name() -> None:
    fields = (
        Field(name="customer", column="customer", type="text", aliases=("Kunde", "customer no", "id")),
        Field(name="id", column="id", type="text"),
    )
    found = map_columns(["CUSTOMER-No.", "ID"], Resource(name="t", table=TableName("public", "t"), fields=fields))
    assert found.mapping == {"CUSTOMER-No.": "customer", "ID": "id"}
    both = map_columns(["kunde", "Customer No"], Resource(name="t", table=TableName("public", "t"), fields=fields))
    assert both.problems == ['Columns "kunde", "Customer No" are all mapped to "customer"']


def test_mapping_of_10000_unknown_columns_is_fast() -> None:
    started = time.process_time()
    found = map_columns([f"colunm_{n}" for n in range(10_000)], resource(*[f"column_{n}" for n in range(1_000)]))
    assert len(found.problems) == 10_000
    assert sum("did you mean" in problem for problem in found.problems) == COLUMN_SUGGESTIONS_MAX
    assert time.process_time() - started < 5.0


def test_fixed_row_matcher_keeps_import_columns_with_underscore() -> None:
    matcher = FixedRowMatcher(7, FixProblems(), {"_id", "n"})
    assert matcher.match_record_to_row({"_id": "1", "n": "2", "_row": "7", "_note": "x"}, 2) == (
        6,
        {"_id": "1", "n": "2"},
    )
