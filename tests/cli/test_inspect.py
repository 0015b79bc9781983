"""The command inspect: needs no database, shows the layout of files, and writes their tables as CSV."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidemill.cli.main import app
from tidemill.core.errors import InvalidInput

ORDERS = 'Orders of May\n\nid;name;price\n1;Ann;2,5\n2;"Bob;Ray";3\n3;Cid\n'


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)], env={"TIDEMILL_DATABASE_URL": "invalid"})
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_text(ORDERS)
    return path


def test_inspect_shows_findings_rows_and_defects_without_a_database(orders: Path) -> None:
    said = run(orders).stdout
    assert f"{orders}: 3 rows, 3 columns, 1 row with a defect" in said
    assert "skip_lines 2 (90%: " in said
    assert "delimiter ; (" in said
    assert "Line 6: Row has 2 fields, but the header has 3" in said
    assert "Bob;Ray" in said


def test_inspect_json_has_layout_findings_rows_and_defects(orders: Path) -> None:
    found = json.loads(run(orders, "--json", "--rows", "1").stdout)
    assert (found["columns"], found["rows"]) == (["id", "name", "price"], [["1", "Ann", "2,5"]])
    assert found["layout"]["skip_lines"] == 2
    assert {"option": "skip_lines", "value": 2, "confidence": 0.9}.items() <= next(
        each for each in found["findings"] if each["option"] == "skip_lines"
    ).items()
    assert found["is_complete"] is False


def test_inspect_output_writes_one_csv_for_each_file(orders: Path, tmp_path: Path) -> None:
    other = tmp_path / "rows.ndjson"
    other.write_text('{"a": 1, "b": {"c": null}}\n{"b": "x,y", "d": true}\n')
    bare = tmp_path / "bare.csv"
    bare.write_text("1,2.5\n2,3.5\n")
    said = run("--rows", "all", "--output", tmp_path / "out", orders, other, bare).stdout
    assert f"{orders}: 3 rows, 3 columns, 1 row with a defect" in said
    written = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert written == {
        "orders.csv": 'id,name,price\n1,Ann,"2,5"\n2,Bob;Ray,3\n3,Cid\n',
        "rows.ndjson.csv": 'a,b,d\n1,"{""c"":null}",\n,"x,y",true\n',
        "bare.csv": "1,2.5\n2,3.5\n",
    }


def test_inspect_reports_unreadable_files_and_reads_the_others(orders: Path, tmp_path: Path) -> None:
    binary = tmp_path / "x.bin"
    binary.write_bytes(b"\x00\x01\x02\x03" * 10)
    result = run(binary, tmp_path / "missing.csv", orders, code=1)
    lines = result.stderr.splitlines()
    assert [line.split(": ")[0] for line in lines] == [str(binary), str(tmp_path / "missing.csv")]
    assert "3 rows, 3 columns" in result.stdout


def test_inspect_options_override_detection(orders: Path) -> None:
    found = json.loads(run(orders, "--json", "--skip-lines", "3", "--no-header", "--short-rows", "pad").stdout)
    assert found["columns"] == ["column_1", "column_2", "column_3"]
    assert [len(row) for row in found["rows"]] == [3, 3, 3]
    assert found["defects"] == []


def test_inspect_names_the_option_if_the_layout_is_not_certain(tmp_path: Path) -> None:
    path = tmp_path / "years.csv"
    path.write_text("region,2019,2020\nnorth,100,200\nsouth,110,190\n")
    assert "Set --header-rows if it is wrong" in run(path).stdout


def test_inspect_of_empty_file_writes_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    run("--rows", "all", "--output", tmp_path / "out", tmp_path / "empty.csv")
    assert (tmp_path / "out" / "empty.csv").read_bytes() == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rows", "all"), "--rows all and --output go together"),
        (("--rows", "few"), '--rows: must be a number or "all", not "few"'),
        (("--rows", "all", "--output", "{folder}"), "it is the file itself"),
    ],
)
def test_inspect_rejects_invalid_options(orders: Path, arguments: tuple[str, ...], message: str) -> None:
    given = [each.format(folder=orders.parent) for each in arguments]
    result = CliRunner().invoke(app, ["inspect", str(orders), *given])
    said = str(result.exception) if isinstance(result.exception, InvalidInput) else result.stderr
    assert message in said
    assert orders.read_text() == ORDERS
