"""The location and the names of stored files. Parsing needs no connection, so settings can be checked anywhere."""

import re
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.errors import InvalidInput

BLOB_NAME_MAX_BYTES = 900  # S3 allows 1,024, including the prefix
BLOB_NAME_SEGMENT_MAX_CHARS = 200
BUCKET_SCHEMES = ("s3", "gs", "az")
_NAME_SEGMENT_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_URL_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A bucket, or a part of one: ``s3://bucket/prefix``."""

    scheme: str
    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return self.url_for("")

    def url_for(self, name: str) -> str:
        return "/".join([f"{self.scheme}:/", self.bucket, *filter(None, (self.prefix, name))])

    def key_for(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix and name else self.prefix or name


def is_blob_name(name: str) -> bool:
    """Return whether a name is valid: segments between slashes, none starts with a dot, no ``.tmp`` at the end.

    Names that end in ``.tmp`` are reserved for incomplete files.
    """
    segments = name.split("/")
    fits = all(
        len(segment) <= BLOB_NAME_SEGMENT_MAX_CHARS and _NAME_SEGMENT_PATTERN.fullmatch(segment) for segment in segments
    )
    return fits and len(name) <= BLOB_NAME_MAX_BYTES and not name.endswith(".tmp")


def check_blob_name(name: str) -> str:
    if not is_blob_name(name):
        raise InvalidInput(f'Invalid name for a stored file: "{name[:BLOB_NAME_SEGMENT_MAX_CHARS]}"')
    return name


def parse_blob_location(text: str) -> Path | BucketLocation:
    """Parse the path of a folder or the URL of a bucket.

    Raises:
        InvalidInput: It is neither. The message does not repeat parts that may be secrets.
    """
    match = _URL_PATTERN.fullmatch(text)
    if match is None:
        if not text.strip() or "\0" in text:
            raise InvalidInput("must be a folder or a bucket URL")
        return Path(text)
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file" and rest.startswith("/"):
        return Path(rest)
    if scheme not in BUCKET_SCHEMES:
        raise InvalidInput("must be a folder, or a URL that starts with s3://, gs:// or az://")
    if any(sign in rest for sign in "@?#:"):
        raise InvalidInput(
            "a bucket URL can contain only the bucket's name and a prefix; put credentials into environment variables"
        )
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET_NAME_PATTERN.fullmatch(bucket) or (prefix and not is_blob_name(prefix)):
        raise InvalidInput(
            f'"{scheme}://{rest[:BLOB_NAME_SEGMENT_MAX_CHARS]}" is not a valid bucket URL; use {scheme}://name/prefix'
        )
    return BucketLocation(scheme, bucket, prefix)
