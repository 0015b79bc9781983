"""Database queries for distributions: the latest file of each input, and the number of generated and reused files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

import msgspec

from tidemill.core.batch import Lease
from tidemill.core.decide import Verdict
from tidemill.core.json_input import JsonObject
from tidemill.distributions.distribution_request import Artifact
from tidemill.failpoints import failpoint
from tidemill.store.database import Connection
from tidemill.store.jsonb import encode_json
from tidemill.store.quota_records import record_stored_file_size
from tidemill.store.statements import make_sql_loader

sql = make_sql_loader("tidemill.distributions")

STORED_FILES_PREFIX = "distribution:"  # file/condemn_one keeps these sizes: the files stay when the job is deleted

ArtifactKey = tuple[str, str, str]
"""The name of a dataset, its fingerprint, and the key of an input."""


class _ArtifactResult(msgspec.Struct):
    """The part of an item's result that this module reads."""

    reused: bool = True
    size: int = 0


_decode_artifact_result = msgspec.json.Decoder(_ArtifactResult).decode


@dataclass(frozen=True, slots=True)
class ArtifactLookup:
    """The latest file of an input, and the current date of the database in UTC."""

    artifact: Artifact | None
    today: date


async def record_artifacts_and_count_reuse(
    conn: Connection, lease: Lease, done: Sequence[Verdict], fingerprints: Mapping[str, str]
) -> None:
    """Record generated files and count reused ones, in the transaction of the flush that settles their items.

    ``fingerprints`` has the fingerprint of each dataset by its name.
    """
    results = [(verdict.seq, verdict.result) for verdict in done if verdict.result is not None]
    decoded = [(seq, result, _decode_artifact_result(result)) for seq, result in results]
    generated = [(seq, result) for seq, result, read in decoded if not read.reused]
    if generated:
        stored_bytes = sum(read.size for _, _, read in decoded if not read.reused)
        name = f"{STORED_FILES_PREFIX}{lease.lease_id.hex}-{lease.flush_no}"  # one row per flush, not per file
        await record_stored_file_size(conn, name, lease.job_id, stored_bytes)
        # One JSON text: an array parameter would escape every quotation mark, which is most of the cost.
        json_array = b"[" + b",".join(result for _, result in generated) + b"]"
        params = {"job_id": lease.job_id, "seqs": [seq for seq, _ in generated], "results": json_array.decode()}
        params |= {"fingerprints": encode_json(fingerprints).decode()}
        await conn.execute(sql("artifact/note"), params)
        failpoint("distribution.artifacts_recorded")
    if results:
        counts = {"generated": len(generated), "reused": len(results) - len(generated)}
        await conn.execute(sql("delivery/add"), {"job_id": lease.job_id} | counts)


async def find_artifacts(conn: Connection, artifact_keys: Sequence[ArtifactKey]) -> list[ArtifactLookup]:
    """Return the latest file of each key, in the order of the keys. Files of another version do not count."""
    datasets, versions, keys = [list(column) for column in zip(*artifact_keys, strict=True)]
    cursor = await conn.execute(sql("artifact/find"), {"datasets": datasets, "versions": versions, "keys": keys})
    rows = sorted(await cursor.fetchall())
    return [ArtifactLookup(None if row[0] is None else Artifact(*row), today) for _, today, *row in rows]


async def is_item_settled_or_deleted(conn: Connection, job_id: UUID, seq: int) -> bool:
    """Return whether an item is settled or was deleted with its job."""
    cursor = await conn.execute(sql("outcome/is_settled"), {"job_id": job_id, "seq": seq})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def has_other_item_with_input(conn: Connection, job_id: UUID, seq: int, input_: str) -> bool:
    """Return whether another item of the job has this input."""
    cursor = await conn.execute(sql("item/has_other"), {"job_id": job_id, "seq": seq, "input": input_})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


@dataclass(frozen=True, slots=True)
class DistributionProgress:
    """The number of generated and reused files of a distribution, its start time, and its first failed input."""

    generated: int = 0
    reused: int = 0
    failed_seq: int | None = None
    failed_because: str | None = None

    @property
    def first_failure_message(self) -> str | None:
        return None if self.failed_seq is None else f"input {self.failed_seq + 1}: {self.failed_because}"


async def read_distribution_progress_by_job(
    conn: Connection, job_ids: Sequence[UUID]
) -> dict[UUID, DistributionProgress]:
    cursor = await conn.execute(sql("delivery/sum"), {"ids": list(job_ids)})
    return {job_id: DistributionProgress(*progress) for job_id, *progress in await cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class DistributionJob:
    """The properties of a distribution's job that determine its files, and its owner; ``created_at`` is in UTC."""

    key: str
    created_at: datetime
    params: JsonObject
    owner_id: int


async def find_distribution_job(conn: Connection, job_id: UUID) -> DistributionJob | None:
    cursor = await conn.execute(sql("job/order"), {"job_id": job_id})
    row = await cursor.fetchone()
    return None if row is None else DistributionJob(*row)
