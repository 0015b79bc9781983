"""Files as people have them are read exactly with nothing configured, or refused with the option to set."""

import contextlib
import io
import json
from collections import Counter

import pytest

from files.corpus.case import Case
from files.corpus.dialect_cases import list_dialect_cases
from files.corpus.report_cases import list_report_cases
from files.corpus.table_cases import list_table_cases
from tidemill.core.errors import InvalidInput
from tidemill.files.layout_detection import detect_layout
from tidemill.files.source_opener import open_block_reader

CASES = [*list_dialect_cases(), *list_table_cases(), *list_report_cases()]
RIGHT_SHARE_MIN = 0.95


def judge(case: Case) -> tuple[str, str]:
    """Return whether a file is read as expected: "right", "refused" or "wrong", and what was read."""
    try:
        layout = detect_layout(io.BytesIO(case.data), name=case.name)
        reader = open_block_reader(io.BytesIO(case.data), layout, {}, max_row_bytes=1 << 20, max_bytes=1 << 30)
    except InvalidInput as error:
        is_expected = bool(case.refused) and case.refused in str(error)
        return ("right" if is_expected else "refused"), str(error)
    with contextlib.closing(reader):
        rows, defects = [], []
        while (block := reader.read(3, 1 << 20)).inputs:  # small blocks, as in the middle of a file
            for at, data in enumerate(block.inputs):
                if at in block.defects:
                    defects.append(block.defects[at]["line"])
                else:
                    rows.append(["" if v is None else str(v) for v in json.loads(data).values()])
    is_right = not case.refused and reader.columns == list(case.columns)
    is_right = is_right and rows == [list(row) for row in case.rows] and defects == list(case.defects)
    return ("right" if is_right else "wrong"), f"{layout.to_json()} {reader.columns} {rows} defects {defects}"


def test_corpus_has_150_different_files() -> None:
    assert len(CASES) >= 150
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_corpus_file_is_read_exactly_or_refused_with_option(case: Case) -> None:
    verdict, found = judge(case)
    assert verdict == "right", found


def test_corpus_has_no_silently_wrong_file() -> None:
    verdicts = {case.name: judge(case)[0] for case in CASES}
    counts = Counter(verdicts.values())
    print(f"{len(CASES)} files: {dict(counts)}")  # noqa: T201  the table of results, with -s
    assert [name for name, verdict in verdicts.items() if verdict == "wrong"] == []
    assert counts["right"] >= RIGHT_SHARE_MIN * len(CASES)
