"""Real FTP and SFTP servers on the loopback interface: `rclone serve` on a folder of the test."""

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from tidemill_bench.s3_server import RCLONE_PATH
from tidemill_bench.server_environment import server_environment

USER, PASSWORD = "mill", "s3cr3t-p4ssw0rd"
SERVER_TIMEOUT_S = 20.0


class Rclone:
    """A server for one protocol. Tests can kill it."""

    def __init__(self, protocol: str, folder: Path, home: Path) -> None:
        self.folder = folder
        self._argv = [str(RCLONE_PATH), "serve", protocol, "--config", os.devnull, "--user", USER, "--pass", PASSWORD]
        self._argv += ["--dir-cache-time", "0"]
        self._home = home
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]

    def __enter__(self) -> Self:
        argv = [*self._argv, "--addr", f"127.0.0.1:{self.port}", str(self.folder)]
        self._log = (self._home / "rclone.log").open("ab")
        env = server_environment(self._home)
        self._process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + SERVER_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise AssertionError((self._home / "rclone.log").read_text())
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(SERVER_TIMEOUT_S)

    def url(self, scheme: str, path: str = "in", user: str = USER) -> str:
        return f'"{scheme}://{user}@127.0.0.1:{self.port}/{path}"'

    @property
    def known_hosts(self) -> str:
        """One line for each host key that the server has generated."""
        keys = (self._home / ".cache" / "rclone" / "serve-sftp").glob("*.pub")
        return "".join(f"[127.0.0.1]:{self.port} {key.read_text().strip()}\n" for key in keys)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.settimeout(1)
            return connection.recv(3) in (b"220", b"SSH")
        return False
