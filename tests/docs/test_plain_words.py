"""Words that the writing style retires stay out of everything people read: docs, messages, help, UI texts."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RETIRED = """
    told tell tells telling mend mends mended mending go_round goes_round sent_round went_round whoever whatever
    somebody nobody anybody everybody anew of_late in_hand at_hand let_in lets_go lets_begin in_our_words so_many
    for_so_long made_real is_none_of are_none_of is_no_field found_out taken_for if_not_said unless_said
    said_otherwise is_said was_said are_said is_asked was_asked are_asked asked_for asks_for is_there_already
    not_there have_a_look a_look looked_at looks_at makes_nothing make_nothing of_before the_other_way_round
    as_it_was as_they_were kind_eye is_at_it stands_for stand_for stands_in stand_in how_far_it_is gets_on get_on
    worth_a_look settled_well its_own_will passed_over by_halves said saying trial trials tried packed unpacked unpacks
    asker askers whoever_asks by_hand by_itself by_themselves used_again made_again made_right corrected corrects
    round_again is_tried was_tried
"""
PATTERN = re.compile(rf"\b({'|'.join(word.replace('_', ' ') for word in RETIRED.split())})\b", re.IGNORECASE)
JS_STRING = re.compile(r"([\"'`])((?:\\.|(?!\1).)*?)\1")


def read_python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Strings and docstrings. A string without a blank is a name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def read_javascript_texts(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        yield from ((number, match[2]) for match in JS_STRING.finditer(line) if " " in match[2])


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    yield from enumerate(path.read_text().splitlines(), 1)


READERS = {".py": read_python_texts, ".js": read_javascript_texts, ".md": read_lines, ".html": read_lines}


def list_files(folder: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if Path(name).suffix in READERS]


@pytest.mark.parametrize("folder", ["src", "docs", "examples", "benchmarks", "*.md"])
def test_texts_contain_no_retired_words(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r} in {text[max(0, match.start() - 40) : match.end() + 40]!r}"
        for path in list_files(folder)
        for number, text in READERS[path.suffix](path)
        for match in PATTERN.finditer(text)
    ]
    assert found == []
