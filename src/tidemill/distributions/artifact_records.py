"""Queries of the distributions: the newest file of each input, and how many files a job has generated or reused."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

import msgspec

from tidemill.core.batch import Lease
from tidemill.core.decide import Verdict
from tidemill.core.json_input import JsonObject
from tidemill.distributions.distribution_request import Artifact
from tidemill.store.database import Connection
from tidemill.store.statements import make_sql_loader

sql = make_sql_loader("tidemill.distributions")

ArtifactKey = tuple[str, str]
"""A dataset, and the key of one of its inputs."""


class _ArtifactResult(msgspec.Struct):
    """The part of an item's result that is read here."""

    reused: bool = True


_decode_artifact_result = msgspec.json.Decoder(_ArtifactResult).decode


@dataclass(frozen=True, slots=True)
class ArtifactLookup:
    """The newest file of an input, and the current date of the database in UTC."""

    artifact: Artifact | None
    today: date


async def record_artifacts(conn: Connection, lease: Lease, done: Sequence[Verdict]) -> None:
    """Record generated files and count reused ones, in the transaction of the flush that settles their items."""
    told = [(verdict.seq, verdict.result) for verdict in done if verdict.result is not None]
    made = [(seq, result) for seq, result in told if not _decode_artifact_result(result).reused]
    if made:
        # One JSON text: in an array every quotation mark would be escaped, which is most of the cost.
        results = b"[" + b",".join(result for _, result in made) + b"]"
        params = {"job_id": lease.job_id, "seqs": [seq for seq, _ in made], "results": results.decode()}
        await conn.execute(sql("artifact/note"), params)
    if told:
        counts = {"generated": len(made), "reused": len(told) - len(made)}
        await conn.execute(sql("delivery/add"), {"job_id": lease.job_id} | counts)


async def find_artifacts(conn: Connection, artifact_keys: Sequence[ArtifactKey]) -> list[ArtifactLookup]:
    """The newest file of each key, in the order of the keys."""
    datasets, keys = [list(column) for column in zip(*artifact_keys, strict=True)]
    cursor = await conn.execute(sql("artifact/find"), {"datasets": datasets, "keys": keys})
    found = sorted(await cursor.fetchall())
    return [ArtifactLookup(None if row[0] is None else Artifact(*row), today) for _, today, *row in found]


async def is_item_settled_or_deleted(conn: Connection, job_id: UUID, seq: int) -> bool:
    """Whether an item is settled, or was deleted with its job."""
    cursor = await conn.execute(sql("outcome/is_settled"), {"job_id": job_id, "seq": seq})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def has_other_item_with_input(conn: Connection, job_id: UUID, seq: int, input_: str) -> bool:
    """Whether another item of the job has this input."""
    cursor = await conn.execute(sql("item/has_other"), {"job_id": job_id, "seq": seq, "input": input_})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


@dataclass(frozen=True, slots=True)
class DistributionProgress:
    """How many files a distribution has generated and reused, when it started, and its first failed input."""

    generated: int = 0
    reused: int = 0
    started_at: datetime | None = None
    failed_seq: int | None = None
    failed_because: str | None = None

    @property
    def failure_message(self) -> str | None:
        return None if self.failed_seq is None else f"input {self.failed_seq + 1}: {self.failed_because}"


async def load_distribution_progress(conn: Connection, job_ids: Sequence[UUID]) -> dict[UUID, DistributionProgress]:
    cursor = await conn.execute(sql("delivery/sum"), {"ids": list(job_ids)})
    return {job_id: DistributionProgress(*told) for job_id, *told in await cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class DistributionJob:
    """The job of a distribution, as its files need it; ``created_at`` is in UTC."""

    key: str
    created_at: datetime
    params: JsonObject


async def find_distribution_job(conn: Connection, job_id: UUID) -> DistributionJob | None:
    cursor = await conn.execute(sql("job/order"), {"job_id": job_id})
    row = await cursor.fetchone()
    return None if row is None else DistributionJob(*row)
