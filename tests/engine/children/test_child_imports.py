"""Tests of the modules that a child imports at startup, which cost memory and start time."""

import subprocess
import sys

SELDOM = ("httpx2", "numpy", "pyarrow", "obstore", "fastapi", "typer", "taskiq", "openpyxl", "prometheus_client")


def test_child_process_does_not_import_optional_packages() -> None:
    loaded = f"[n for n in {SELDOM} if n in sys.modules]"
    code = f"import sys, tidemill.app.child_main, tidemill.app.mill; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
