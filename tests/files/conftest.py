"""Fixtures: downloads with short limits from servers on the loopback interface."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.loopback_server import Answer, Server
from tidemill.core.allowed_hosts import AllowedHost
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.files.remote.checked_connection import DownloadLimits
from tidemill.files.remote.downloader import Downloader

Serve = Callable[[Answer], Server]
Make = Callable[..., Downloader]


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobStore:
    return FolderBlobStore(tmp_path / "blobs")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers, and stop them after the test."""
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(Server(answer))


@pytest.fixture
def remote(blobs: FolderBlobStore) -> Make:
    """Return downloaders for these servers only, with short timeouts and a limit of 1 MB."""

    def make(
        *servers: Server,
        total_s: float = 10.0,
        silence_s: float = 5.0,
        tries: int = 3,
        also: Sequence[AllowedHost] = (),
        **options: Any,
    ) -> Downloader:
        limits = DownloadLimits(
            1_000_000,
            total_s=total_s,
            connect_s=2.0,
            silence_s=silence_s,
            tries=tries,
            backoff_s=0.01,
            allowed=[*(server.allowed for server in servers), *also],
        )
        return Downloader(blobs, limits, **options)

    return make
