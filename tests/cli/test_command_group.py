"""Command summaries match the command modules, and the help imports none of them."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest
from typer.main import get_group

from tidemill.cli.main import load_command_summaries

HEAVY = ("asyncpg", "fastapi", "httpx2", "msgspec", "numpy", "obstore", "psycopg", "pydantic", "structlog", "uvicorn")


@pytest.mark.parametrize("module", load_command_summaries())
def test_summaries_equal_the_help_of_the_commands(module: str) -> None:
    commands = get_group(import_module(module).commands).commands
    helps = {name: inspect.cleandoc(command.help or "").split("\n\n")[0] for name, command in commands.items()}
    assert {name: " ".join(text.split()) for name, text in helps.items()} == load_command_summaries()[module]


@pytest.mark.parametrize("arguments", ["", "--help"])
def test_help_and_import_load_no_feature(arguments: str) -> None:
    run = (
        "from tidemill.cli.main import app; app(['--help'], standalone_mode=False)" if arguments else "import tidemill"
    )
    code = f"import sys; {run}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
