"""Where stored files are, and what they may be called: words alone, so that settings can be checked anywhere."""

import re
from dataclasses import dataclass
from pathlib import Path

from tidemill.domain.errors import InvalidInput

NAME_MAX = 900  # bytes; S3 takes 1,024, and a prefix comes before
SEGMENT_MAX = 200
SCHEMES = ("s3", "gs", "az")
_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """A bucket, or a part of one: ``s3://bucket/prefix``."""

    scheme: str
    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return self.url("")

    def url(self, name: str) -> str:
        return "/".join([f"{self.scheme}:/", self.bucket, *filter(None, (self.prefix, name))])

    def key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix and name else self.prefix or name


def is_name(name: str) -> bool:
    """Words between slashes, none of which begins with a dot; what ends in ``.tmp`` is never a whole file."""
    segments = name.split("/")
    fits = all(len(segment) <= SEGMENT_MAX and _SEGMENT.fullmatch(segment) for segment in segments)
    return fits and len(name) <= NAME_MAX and not name.endswith(".tmp")


def checked_name(name: str) -> str:
    if not is_name(name):
        raise InvalidInput(f"{name[:SEGMENT_MAX]!r} is not the name of a stored file")
    return name


def parse_place(text: str) -> Path | BucketPlace:
    """A folder, or a bucket; InvalidInput says what is wrong. What may be a secret is not repeated."""
    found = _URL.fullmatch(text)
    if found is None:
        if not text.strip() or "\0" in text:
            raise InvalidInput("a folder, or the address of a bucket, is needed")
        return Path(text)
    scheme, rest = found[1].lower(), found[2]
    if scheme == "file" and rest.startswith("/"):
        return Path(rest)
    if scheme not in SCHEMES:
        raise InvalidInput("a folder is needed, or an address that begins with s3://, gs:// or az://")
    if any(sign in rest for sign in "@?#:"):
        raise InvalidInput("the address of a bucket is only its name and a prefix; keys belong into the environment")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET.fullmatch(bucket) or (prefix and not is_name(prefix)):
        raise InvalidInput(
            f"{scheme}://{rest[:SEGMENT_MAX]} is not the address of a bucket, like {scheme}://name/prefix"
        )
    return BucketPlace(scheme, bucket, prefix)
