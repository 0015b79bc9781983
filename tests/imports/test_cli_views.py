"""Errors of an import on a terminal."""

import io

import pytest
from rich.console import Console

from tidemill.imports import cli_views


def test_import_error_reason_is_wrapped_completely_on_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(cli_views, "console", Console(width=80, file=said, force_terminal=True, color_system=None))
    reason = "no matching row in demo.users or in this batch of the file"
    error = {"row": 208, "code": "author_id.unknown_reference", "value": "0" * 36, "reason": reason}
    cli_views.print_error_samples([(250, error)])
    column = said.getvalue().splitlines()[0].index("reason")
    assert " ".join(line[column:].strip() for line in said.getvalue().splitlines()[1:]) == reason
