"""The least that files in an object store can cost: the bare client, with nothing to find out first."""

import asyncio
import time
from collections.abc import Iterator, Sequence

import obstore
from obstore.store import S3Store

from tidemill.cli.bench.s3 import REGION, S3Server
from tidemill.domain.errors import TidemillError

AT_ONCE = 32


async def upload(server: S3Server, folder: str, files: Sequence[bytes]) -> float:
    """The seconds until all of them are there, under numbers."""
    store = _bare(server)
    left = iter(enumerate(files))
    started = time.monotonic()
    await asyncio.gather(*(_some(store, folder, left) for _ in range(AT_ONCE)))
    return time.monotonic() - started


def list_names(server: S3Server, folder: str) -> float:
    """The seconds until it is known what is there."""
    store = _bare(server)
    started = time.monotonic()
    found = sum(len(batch) for batch in obstore.list(store, prefix=folder))
    if not found:
        raise TidemillError(f"there is nothing in {folder}: what was measured is not the work")
    return time.monotonic() - started


def _bare(server: S3Server) -> S3Store:
    return S3Store(
        server.bucket,
        access_key_id=server.key,
        secret_access_key=server.secret,
        endpoint=server.endpoint,
        region=REGION,
        client_options={"allow_http": True},
    )


async def _some(store: S3Store, folder: str, left: Iterator[tuple[int, bytes]]) -> None:
    for number, data in left:
        await obstore.put_async(store, f"{folder}/{number}.csv", data)
