"""The command tidemill match."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.reconciliation_services import CsvReconcile

if TYPE_CHECKING:
    from support.command import Tidemill


@pytest.fixture(scope="module")
def reconcile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CsvReconcile]:
    folder: Path = tmp_path_factory.mktemp("reconcile")
    with CsvReconcile(folder, ["Ada Lovelace", "Alan Turing", "Grace Hopper"]) as service:
        yield service


@pytest.mark.needs_feature("exports")
def test_match_command_writes_matches_to_output_file(tidemill: "Tidemill", reconcile: CsvReconcile) -> None:
    tidemill.file("tidemill.toml", f'[services.people]\nurl = "{reconcile.url}"\nallow_private = true\n')
    people = tidemill.file("people.csv", "who;born\nAda Lovelace;1815\nAlan Turin;1912\nNobody;1\n")
    arguments = ["--service", "people", "--query", "who", "--threshold", "75", "--not-found-delay", "0"]
    tidemill.anew = True
    output = tidemill("match", people, *arguments, "--property", "P569=born", "-o", "found.csv").out
    assert "completed" in output
    assert "1 not found" in output
    with (tidemill.folder / "found.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["name"], row["_status"]) for row in rows] == [
        ("E0", "Ada Lovelace", "done"),
        ("E1", "Alan Turing", "done"),
        ("", "", "not_found"),
    ]


def test_match_command_with_invalid_parameters_is_rejected_and_stores_nothing(
    tidemill: "Tidemill", reconcile: CsvReconcile
) -> None:
    tidemill.file("tidemill.toml", f'[services.people]\nurl = "{reconcile.url}"\nallow_private = true\n')
    people = tidemill.file("people.csv", "who\nAda\n")
    output = tidemill("match", people, "--service", "people", "--query", "whom", code=2).err
    assert 'unknown column "whom"; did you mean' in output
    params = '{"service": "peple", "query": "who"}'
    assert 'did you mean "people"?' in tidemill("submit", "match", people, "--params", params, code=2).err
    assert "No jobs yet" in tidemill("jobs").out
