"""What a child process has loaded before it has any work: every worker pays for it in memory and at every start."""

import subprocess
import sys

SELDOM = ("httpx2", "numpy", "pyarrow", "obstore", "fastapi", "typer", "taskiq", "openpyxl", "prometheus_client")


def test_a_child_loads_only_what_every_child_needs() -> None:
    code = f"import sys, tidemill.cli.child, tidemill.plain; print([n for n in {SELDOM} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
