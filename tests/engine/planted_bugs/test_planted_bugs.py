"""The suites notice planted bugs: each one is applied to a copy of the package, and the named test must fail there."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUGS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("bugs.toml").read_text())
IN_EVERY_RUN = ("fence_without_flush_no", "merge_loses_a_list", "effects_before_fence")
TEST_TIMEOUT_S = 120.0


@pytest.mark.parametrize("name", BUGS)
def test_text_of_planted_bug_occurs_once(name: str) -> None:
    bug = BUGS[name]
    assert (ROOT / "src/tidemill" / bug["file"]).read_text().count(bug["text"]) == 1
    assert bug["text"] != bug["bug"]


@pytest.mark.parametrize(
    "name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.full) for name in BUGS]
)
def test_planted_bug_is_caught(name: str, tmp_path: Path) -> None:
    bug = BUGS[name]
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, copy_function=os.symlink)
    patched = source / "tidemill" / bug["file"]
    text = patched.read_text()
    patched.unlink()  # a link to the original
    patched.write_text(text.replace(bug["text"], bug["bug"]))
    result = _run_test(bug["caught_by"], source)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    assert f"FAILED tests/{bug['caught_by']}" in result.stdout, result.stdout


def _run_test(test: str, source: Path) -> subprocess.CompletedProcess[str]:
    """Run one test with the package in a folder instead of the installed one."""
    options = ["-q", "-x", "--tb=line", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"tests/{test}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(source), "COLUMNS": "400"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TEST_TIMEOUT_S,
        check=False,
    )
