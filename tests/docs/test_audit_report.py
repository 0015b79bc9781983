"""What `make audit` prints and returns for the reports of pip-audit."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "read-audit-report"
GOOD = {"name": "rich", "version": "15.0.0", "vulns": []}
BAD = {"name": "h11", "version": "0.1", "vulns": [{"id": "CVE-1", "fix_versions": ["0.2"]}]}
UNKNOWN = {"name": "mine", "skip_reason": "Dependency not found"}


def read(report: str) -> tuple[int, str]:
    done = subprocess.run([SCRIPT], input=report, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("dependencies", "code", "says"),
    [
        ([GOOD], 0, "Checked 1 packages: 0 known vulnerabilities"),
        ([GOOD, UNKNOWN], 0, "Not checked, because the source does not know them: 1 packages (mine)"),
        ([GOOD, BAD], 1, "h11 0.1: CVE-1, fixed in 0.2"),
        ([UNKNOWN], 2, "Cannot audit"),
        ([], 2, "Cannot audit"),
    ],
)
def test_audit_fails_on_vulnerability_and_if_nothing_was_checked(
    dependencies: list[dict[str, Any]], code: int, says: str
) -> None:
    returned, output = read(json.dumps({"dependencies": dependencies, "fixes": []}))
    assert returned == code
    assert says in output


def test_audit_without_report_says_that_it_cannot_audit() -> None:
    assert read("")[0] == 2
