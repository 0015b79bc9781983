"""``python -m tidemill`` and ``tidemill.__version__``."""

import subprocess
import sys
from importlib.metadata import version

import tidemill


def test_the_version_is_that_of_the_installed_package() -> None:
    assert tidemill.__version__ == version("tidemill")


def test_python_m_tidemill_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "tidemill", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: " in done.stdout
    assert "worker" in done.stdout
