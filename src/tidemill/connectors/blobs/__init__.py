"""Stored files: in a folder, or in a bucket of an object store."""

from functools import cache
from pathlib import Path

from tidemill.connectors.blobs.base import Blob, Blobs, Label, Writing
from tidemill.connectors.blobs.folder import Folder
from tidemill.connectors.blobs.sync import sync_folder
from tidemill.domain.place import parse_place

__all__ = ["Blob", "Blobs", "Folder", "Label", "Writing", "open_blobs", "sync_folder"]


@cache
def open_blobs(place: str) -> Blobs:
    """The store of a process at this place: a folder, or ``s3://bucket/prefix``, ``gs://…``, ``az://…``.

    Nothing is opened before it is used.
    """
    parsed = parse_place(place)
    if isinstance(parsed, Path):
        return Folder(parsed)
    from tidemill.connectors.blobs.bucket import Bucket  # noqa: PLC0415  20 ms that a folder does not need

    return Bucket(parsed)
