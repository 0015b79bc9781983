"""The S3 server of the benchmarks, which tests can also suspend."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tidemill_bench import s3_server

STOP_TIMEOUT_S = 30.0


class S3Server(s3_server.S3Server):
    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend the server inside the block: it accepts connections and does not respond."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not _is_stopped(self._process.pid):  # SIGSTOP stops each thread when it is next scheduled
            assert time.monotonic() < deadline, f"the S3 server has not stopped {STOP_TIMEOUT_S} s after SIGSTOP"
            time.sleep(0.005)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
