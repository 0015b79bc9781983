"""``scripts/list-messages`` prints the texts that users can read, by package."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*packages: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "list-messages"), *packages],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_list_messages_prints_errors_help_and_descriptions_of_package() -> None:
    done = run("imports")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n## ") == 1
    lines = done.stdout.splitlines()
    for file, kind, text in (
        ("imports/import_submission.py", "error", "The file is empty"),
        ("imports/cli.py", "help", "Dry run: check all rows, write none"),
    ):
        assert any(line.startswith(file) and f"  {kind} " in line and line.endswith(text) for line in lines), text


def test_list_messages_prints_texts_of_web_ui() -> None:
    assert "  ui     No problems found." in run("web").stdout


def test_list_messages_names_packages_when_package_is_unknown() -> None:
    done = run("nothing")
    assert done.returncode == 1
    assert "Unknown package: nothing. Packages: (root), accounts" in done.stderr
