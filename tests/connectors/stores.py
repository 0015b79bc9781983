"""Every store of files, fresh and empty."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from obstore.store import MemoryStore

from s3 import S3Server
from tidemill.connectors.blobs import Blobs, Folder
from tidemill.connectors.blobs.bucket import Bucket
from tidemill.connectors.blobs.client import Limits
from tidemill.domain.place import BucketPlace

IMPATIENT = Limits(connect_s=0.5, request_s=0.5, tries=2, all_tries_s=1.0)


def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "deep" / "blobs")


def bucket(server: S3Server, tmp_path: Path, limits: Limits | None = None) -> Bucket:
    place = BucketPlace("s3", server.bucket, f"some/{uuid4().hex[:8]}")
    return Bucket(place, limits, scratch=tmp_path / "scratch")


def memory(tmp_path: Path) -> Bucket:
    """A bucket that knows ranges and conditions, unlike rclone's."""
    kept: Any = MemoryStore()
    return Bucket(BucketPlace("s3", "memory", "some"), scratch=tmp_path / "scratch", open_store=lambda *_: kept)


def names(blobs: Blobs) -> list[str]:
    return sorted(blobs.list_names())
