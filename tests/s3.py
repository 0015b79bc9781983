"""The S3 server of the benchmark, which tests also stop in the middle of a sentence."""

import contextlib
import signal
from collections.abc import Iterator

from tidemill.cli.bench import s3


class S3Server(s3.S3Server):
    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It takes connections and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)
