"""The public names are typed: mypy checks a user's module as a user would, without this project's configuration."""

import re
import sys
from pathlib import Path

from mypy import api

USER_CODE = Path(__file__).with_name("user_code.py")


def test_mypy_strict_reports_exactly_the_marked_errors(tmp_path: Path) -> None:
    # Outside the project, so that mypy follows the installed package and its py.typed.
    copy = tmp_path / "user_code.py"
    copy.write_text(USER_CODE.read_text("utf-8"), "utf-8")
    options = ["--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"), "--show-error-codes"]
    output, problems, _ = api.run([*options, "--python-executable", sys.executable, "--no-pretty", str(copy)])
    assert not problems
    reported = re.findall(r"user_code\.py:(\d+): error: .*\[([\w-]+)\]$", output, re.MULTILINE)
    found = {(int(line), code) for line, code in reported}
    assert found == _list_expected_errors(), output


def _list_expected_errors() -> set[tuple[int, str]]:
    lines = USER_CODE.read_text("utf-8").splitlines()
    marked = [(number, line.rpartition("# E: ")) for number, line in enumerate(lines, 1)]
    return {(number, code) for number, (_, mark, code) in marked if mark}
