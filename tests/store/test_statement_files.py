"""Tests that every statement that the code names has a file."""

import re
from pathlib import Path

import tidemill

PACKAGE = Path(tidemill.__file__).parent
NAMED = re.compile(r'\bsql\(\s*"([a-z_]+/[a-z_0-9]+)"')


def test_every_named_statement_has_a_file() -> None:
    files = {path.as_posix().partition("/queries/")[2].removesuffix(".sql") for path in PACKAGE.rglob("*.sql")}
    named = {(path, name) for path in PACKAGE.rglob("*.py") for name in NAMED.findall(path.read_text())}
    assert len(named) > 200
    assert [f"{path.relative_to(PACKAGE)}: {name}" for path, name in sorted(named) if name not in files] == []
