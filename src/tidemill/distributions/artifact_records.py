"""Files of distributions: the newest of each input, and how many a job has made or used again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

import msgspec

from tidemill.core.batch import Lease
from tidemill.core.decide import Verdict
from tidemill.core.json_types import JsonObject
from tidemill.distributions.distribution_request import Artifact
from tidemill.store.database import Connection
from tidemill.store.statements import load_sql

sql = load_sql("tidemill.distributions")

ArtifactKey = tuple[str, str]
"""A dataset, and the key of one of its inputs."""


class _ArtifactResult(msgspec.Struct):
    """As much of an item's result as is looked at here."""

    reused: bool = True


_decode_artifact_result = msgspec.json.Decoder(_ArtifactResult).decode


@dataclass(frozen=True, slots=True)
class ArtifactLookup:
    """What the registry has of an input, and what day it is by the database's clock, in UTC."""

    artifact: Artifact | None
    today: date


async def record_artifacts(conn: Connection, lease: Lease, done: Sequence[Verdict]) -> None:
    """In the transaction of the flush that settles them. What was used again stays as it is."""
    told = [(verdict.seq, verdict.result) for verdict in done if verdict.result is not None]
    made = [(seq, result) for seq, result in told if not _decode_artifact_result(result).reused]
    if made:
        # As one text: an array would have every quotation mark of it escaped, which is most of the work.
        results = b"[" + b",".join(result for _, result in made) + b"]"
        params = {"job_id": lease.job_id, "seqs": [seq for seq, _ in made], "results": results.decode()}
        await conn.execute(sql("artifact/note"), params)
    if told:
        counts = {"generated": len(made), "reused": len(told) - len(made)}
        await conn.execute(sql("delivery/add"), {"job_id": lease.job_id} | counts)


async def find_artifacts(conn: Connection, artifact_keys: Sequence[ArtifactKey]) -> list[ArtifactLookup]:
    """In the order in which they are asked for."""
    datasets, keys = [list(column) for column in zip(*artifact_keys, strict=True)]
    cursor = await conn.execute(sql("artifact/find"), {"datasets": datasets, "keys": keys})
    found = sorted(await cursor.fetchall())
    return [ArtifactLookup(None if row[0] is None else Artifact(*row), today) for _, today, *row in found]


async def is_item_settled(conn: Connection, job_id: UUID, seq: int) -> bool:
    """Whether an item is settled already, or gone with its job."""
    cursor = await conn.execute(sql("outcome/is_settled"), {"job_id": job_id, "seq": seq})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def has_other_item_with_input(conn: Connection, job_id: UUID, seq: int, input_: str) -> bool:
    """Whether another item of the job has this input."""
    cursor = await conn.execute(sql("item/has_other"), {"job_id": job_id, "seq": seq, "input": input_})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


@dataclass(frozen=True, slots=True)
class DistributionFileCounts:
    """Of a distribution: how many are new, and how many were there before; when it began, and who failed first."""

    generated: int = 0
    reused: int = 0
    started_at: datetime | None = None
    failed_seq: int | None = None
    failed_because: str | None = None

    @property
    def failure_message(self) -> str | None:
        return None if self.failed_seq is None else f"input {self.failed_seq + 1}: {self.failed_because}"


async def count_distribution_files(conn: Connection, job_ids: Sequence[UUID]) -> dict[UUID, DistributionFileCounts]:
    cursor = await conn.execute(sql("delivery/sum"), {"ids": list(job_ids)})
    return {job_id: DistributionFileCounts(*told) for job_id, *told in await cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class DistributionJob:
    """What the files of a job need to know of it; ``created_at`` is in UTC."""

    key: str
    created_at: datetime
    params: JsonObject


async def find_distribution_job(conn: Connection, job_id: UUID) -> DistributionJob | None:
    cursor = await conn.execute(sql("job/order"), {"job_id": job_id})
    row = await cursor.fetchone()
    return None if row is None else DistributionJob(*row)
