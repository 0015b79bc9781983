"""A large file, as the body itself and as a part of a form."""

import itertools
from collections.abc import Iterator

from tidemill.cli.bench.mill import NOOP
from tidemill.cli.bench.rows import base
from tidemill.cli.bench.service.http import Answer, Client
from tidemill.store.json import encode

MB = 1 << 20
BOUNDARY = "tidemill-bench"


async def as_body(client: Client, megabytes: int) -> Answer:
    return await client.send(f"/v1/jobs?kind={NOOP}", "application/x-ndjson", megabytes * MB, _pieces(megabytes))


async def as_form(client: Client, megabytes: int) -> Answer:
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="kind"\r\n\r\n{NOOP}\r\n'
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="rows.ndjson"\r\n\r\n'
    ).encode()
    tail = f"\r\n--{BOUNDARY}--\r\n".encode()
    length = len(head) + megabytes * MB + len(tail)
    pieces = itertools.chain([head], _pieces(megabytes), [tail])
    return await client.send("/v1/jobs", f"multipart/form-data; boundary={BOUNDARY}", length, pieces)


def _pieces(megabytes: int) -> Iterator[bytes]:
    """Rows, a megabyte at a time; it is always the same one."""
    rows = b"".join(encode(row) + b"\n" for row in base())
    piece = (rows * (MB // len(rows) + 1))[:MB]
    return itertools.repeat(piece, megabytes)
