"""The least that bringing files to an object store can cost: the bare client, with nothing to find out first."""

import asyncio
import time
from collections.abc import Iterator, Sequence

import obstore
from obstore.store import S3Store

from tidemill.cli.bench.s3 import REGION, S3Server

AT_ONCE = 32


async def upload(server: S3Server, folder: str, files: Sequence[bytes]) -> float:
    """The seconds until all of them are there, under numbers."""
    store = S3Store(
        server.bucket,
        access_key_id=server.key,
        secret_access_key=server.secret,
        endpoint=server.endpoint,
        region=REGION,
        client_options={"allow_http": True},
    )
    left = iter(enumerate(files))
    started = time.monotonic()
    await asyncio.gather(*(_some(store, folder, left) for _ in range(AT_ONCE)))
    return time.monotonic() - started


async def _some(store: S3Store, folder: str, left: Iterator[tuple[int, bytes]]) -> None:
    for number, data in left:
        await obstore.put_async(store, f"{folder}/{number}.csv", data)
