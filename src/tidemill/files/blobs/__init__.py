"""Blob stores: files in a folder, or in a bucket of an object store."""

from functools import cache
from pathlib import Path

from tidemill.core.blob_location import parse_blob_location
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.files.blobs.folder_store import FolderBlobStore


@cache
def open_blob_store(place: str) -> BlobStore:
    """Return this process's blob store for a folder, or for ``s3://bucket/prefix``, ``gs://…`` or ``az://…``.

    The store connects on first use.
    """
    parsed = parse_blob_location(place)
    if isinstance(parsed, Path):
        return FolderBlobStore(parsed)
    from tidemill.files.blobs.bucket_store import BucketBlobStore  # noqa: PLC0415  the import takes 20 ms

    return BucketBlobStore(parsed)
