"""Processes that run until Ctrl-C also stop when the user closes their terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

STOP_TIMEOUT_S = 60


def test_up_stops_embedded_server_when_terminal_closes(tmp_path: Path) -> None:
    main, side = pty.openpty()
    variables = {name: value for name, value in os.environ.items() if not name.endswith("DATABASE_URL")}
    with subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-m", "tidemill", "up", "--port", "0"],
        cwd=tmp_path,
        env=variables | {"TIDEMILL_HOME": str(tmp_path / "home"), "TERM": "xterm"},
        stdin=side,
        stdout=side,
        stderr=side,
    ) as process:
        os.close(side)
        printed = b""
        while b"Ctrl-C" not in printed:
            printed += os.read(main, 65_536)
        assert (tmp_path / "home" / "postgres" / "postmaster.pid").exists()
        os.close(main)  # the kernel sends SIGHUP
        assert process.wait(STOP_TIMEOUT_S) == 0
    assert not (tmp_path / "home" / "postgres" / "postmaster.pid").exists()
