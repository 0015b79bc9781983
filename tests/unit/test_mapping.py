"""Which column of a file is which field."""

import time

from tidemill.domain.importing import guess
from tidemill.domain.importing.fixes import Matcher, Problems
from tidemill.domain.importing.mapping import GUESSES
from tidemill.domain.resource import Field, Resource, Table


def resource(*names: str) -> Resource:
    fields = tuple(Field(name=name, column=name, type="text") for name in names)
    return Resource(name="t", table=Table("public", "t"), fields=fields)


def test_a_said_column_goes_where_it_was_said_and_others_by_their_folded_name() -> None:
    found = guess(
        ["E-Mail", "Full  Name", "x", "_row", "note"], resource("email", "full_name", "y"), {"x": "y", "note": ""}
    )
    assert found.mapping == {"E-Mail": "email", "Full  Name": "full_name", "x": "y"}
    assert (found.unknown, found.missing, found.problems) == ([], [], [])


def test_names_of_nothing_but_punctuation_are_like_no_other() -> None:
    found = guess(["%%", "$$"], resource("$$", "n"))
    assert (found.mapping, found.unknown) == ({"$$": "$$"}, ["%%"])


def test_ten_thousand_strange_columns_are_told_in_no_time() -> None:
    started = time.process_time()
    found = guess([f"colunm_{n}" for n in range(10_000)], resource(*[f"column_{n}" for n in range(1_000)]))
    assert len(found.problems) == 10_000
    assert sum("did you mean" in problem for problem in found.problems) == GUESSES
    assert time.process_time() - started < 5.0


def test_a_mended_row_keeps_the_columns_of_its_import_whatever_they_are_called() -> None:
    matcher = Matcher(7, Problems(), {"_id", "n"})
    assert matcher.match({"_id": "1", "n": "2", "_row": "7", "_note": "x"}, 2) == (6, {"_id": "1", "n": "2"})
