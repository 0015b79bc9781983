"""Where stored files are, and what they may be called: words alone, so that settings can be checked anywhere."""

import re
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.errors import InvalidInput

BLOB_NAME_MAX_BYTES = 900  # bytes; S3 takes 1,024, and a prefix comes before
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
    """Words between slashes, none of which begins with a dot; what ends in ``.tmp`` is never a whole file."""
    segments = name.split("/")
    fits = all(
        len(segment) <= BLOB_NAME_SEGMENT_MAX_CHARS and _NAME_SEGMENT_PATTERN.fullmatch(segment) for segment in segments
    )
    return fits and len(name) <= BLOB_NAME_MAX_BYTES and not name.endswith(".tmp")


def check_blob_name(name: str) -> str:
    if not is_blob_name(name):
        raise InvalidInput(f"{name[:BLOB_NAME_SEGMENT_MAX_CHARS]!r} is not the name of a stored file")
    return name


def parse_blob_location(text: str) -> Path | BucketLocation:
    """A folder, or a bucket; InvalidInput says what is wrong. What may be a secret is not repeated."""
    found = _URL_PATTERN.fullmatch(text)
    if found is None:
        if not text.strip() or "\0" in text:
            raise InvalidInput("a folder, or the address of a bucket, is needed")
        return Path(text)
    scheme, rest = found[1].lower(), found[2]
    if scheme == "file" and rest.startswith("/"):
        return Path(rest)
    if scheme not in BUCKET_SCHEMES:
        raise InvalidInput("a folder is needed, or an address that begins with s3://, gs:// or az://")
    if any(sign in rest for sign in "@?#:"):
        raise InvalidInput("the address of a bucket is only its name and a prefix; keys belong into the environment")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET_NAME_PATTERN.fullmatch(bucket) or (prefix and not is_blob_name(prefix)):
        raise InvalidInput(
            f"{scheme}://{rest[:BLOB_NAME_SEGMENT_MAX_CHARS]} is not the address of a bucket, like {scheme}://name/prefix"
        )
    return BucketLocation(scheme, bucket, prefix)
