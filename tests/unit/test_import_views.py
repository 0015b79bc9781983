"""Errors of an import on a terminal."""

import io

import pytest
from rich.console import Console

from tidemill.cli import import_views


def test_on_a_narrow_terminal_no_word_of_a_reason_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(import_views, "console", Console(width=80, file=said))
    reason = "there is no such row in demo.users, and never was"
    error = {"row": 208, "code": "author_id.unknown_reference", "value": "0" * 36, "reason": reason}
    import_views.show_errors([(250, error)])
    column = said.getvalue().splitlines()[0].index("reason")
    assert " ".join(line[column:].strip() for line in said.getvalue().splitlines()[1:]) == reason
