"""Parses the ids of items in requests."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import Path

from tidemill.core.row_ranges import SeqRange, merge_ranges
from tidemill.jobs.bulk_operation_schemas import ItemChoiceIn
from tidemill.rest.json_body import make_validation_error


def parse_item_ids(ids: Sequence[str], field: str) -> list[tuple[UUID, int]]:
    """Parse item ids from a field of the body to job ids and seqs."""
    parsed = [_parse_item_id(text) for text in ids]
    _reject_invalid_item_ids(ids, field, [item is not None for item in parsed], '"{}" is not an item id')
    return [item for item in parsed if item is not None]


def parse_item_seqs(ids: Sequence[str], field: str, job_id: UUID) -> list[int]:
    """Return the seqs of items of this job; items of another job are a validation error."""
    items = parse_item_ids(ids, field)
    _reject_invalid_item_ids(ids, field, [job == job_id for job, _ in items], '"{}" is an item of another job')
    return [seq for _, seq in items]


def _parse_item_id(text: str) -> tuple[UUID, int] | None:
    job, _, seq = text.partition(":")
    try:
        return UUID(job), int(seq)
    except ValueError:
        return None


def _reject_invalid_item_ids(ids: Sequence[str], field: str, are_valid: Sequence[bool], message: str) -> None:
    invalid = [(at, text) for at, (text, is_valid) in enumerate(zip(ids, are_valid, strict=True)) if not is_valid]
    if invalid:
        raise make_validation_error([(("body", field, at), message.format(text)) for at, text in invalid])


def parse_item_selection(body: ItemChoiceIn, job_id: UUID) -> tuple[list[int] | None, tuple[SeqRange, ...]]:
    """Return the selected seqs, None for all items, and the selected ranges of seqs."""
    seqs = None if body.item_ids is None else parse_item_seqs(body.item_ids, "item_ids", job_id)
    if body.ranges is None:
        return seqs, ()
    return seqs or [], merge_ranges(body.ranges)


ItemSeq = Annotated[int, Path(ge=0, le=2**62, description="Number of the item in its job, from 0")]
