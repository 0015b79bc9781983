"""Empty blob stores of each type: folder, bucket and memory."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from obstore.store import MemoryStore

from support.s3 import S3Server
from tidemill.core.blob_location import BucketLocation
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.files.blobs.bucket_store import BucketBlobStore, ObjectStoreLimits
from tidemill.files.blobs.folder_store import FolderBlobStore

IMPATIENT = ObjectStoreLimits(connect_s=0.5, request_s=0.5, tries=2, all_tries_s=1.0)


def folder(tmp_path: Path) -> FolderBlobStore:
    return FolderBlobStore(tmp_path / "deep" / "blobs")


def bucket(server: S3Server, tmp_path: Path, limits: ObjectStoreLimits | None = None) -> BucketBlobStore:
    place = BucketLocation("s3", server.bucket, f"some/{uuid4().hex[:8]}")
    return BucketBlobStore(place, limits, scratch_folder=tmp_path / "scratch")


def memory(tmp_path: Path) -> BucketBlobStore:
    """Return a bucket in memory. Unlike rclone, it supports ranges and conditional puts."""
    kept: Any = MemoryStore()
    return BucketBlobStore(
        BucketLocation("s3", "memory", "some"), scratch_folder=tmp_path / "scratch", open_store=lambda *_: kept
    )


def names(blobs: BlobStore) -> list[str]:
    return sorted(blobs.list_names())
