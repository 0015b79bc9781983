"""The client of an object store, its limits, and its errors in our words."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from tidemill.domain.errors import StoreDenied, StoreUnavailable, TidemillError, UnknownFile
from tidemill.domain.place import BucketPlace

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

Store = S3Store | GCSStore | AzureStore
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a store may take. A request is tried again when the connection fails or the store has trouble."""

    connect_s: float = 5.0
    request_s: float = 60.0  # for a part of 8 MB
    tries: int = 5
    all_tries_s: float = 60.0


def open_store(place: BucketPlace, limits: Limits, config: Mapping[str, str] | None = None) -> Store:
    """With the keys that the environment has; plain http only to an endpoint that says so.

    ``config``, of S3 alone, goes before the environment: ``endpoint``, ``region``, ``access_key_id``, …
    """
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=limits.connect_s),
        "timeout": timedelta(seconds=limits.request_s),
        "user_agent": "tidemill",
        "default_content_type": "application/octet-stream",
    }
    endpoint = (config or {}).get("endpoint")
    if _is_plain(endpoint) if endpoint else _is_plain_http(place.scheme):
        client["allow_http"] = True
    retry: RetryConfig = {"max_retries": limits.tries - 1, "retry_timeout": timedelta(seconds=limits.all_tries_s)}
    match place.scheme:
        case "s3":
            more: S3Config = {**(config or {})}  # type: ignore[typeddict-item]
            return S3Store(place.bucket, config=more, client_options=client, retry_config=retry)
        case "gs":
            return GCSStore(place.bucket, client_options=client, retry_config=retry)
        case _:
            return AzureStore(place.bucket, client_options=client, retry_config=retry)


def _is_plain_http(scheme: str) -> bool:
    names = {
        "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "gs": ("GOOGLE_BASE_URL",),
        "az": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
    }
    said = (os.environ.get(name) for name in names.get(scheme, ()))
    return any(value is not None and _is_plain(value) for value in said)


def _is_plain(url: str) -> bool:
    return url.lower().startswith("http://")


@contextmanager
def in_our_words(place: BucketPlace, name: str, *, writing: bool = False) -> Iterator[None]:
    """What the client says has addresses, ids and dumps in it: of that, only codes are repeated."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        raise _told(error, str(error), place, name, writing=writing) from None


def _told(error: Exception, text: str, place: BucketPlace, name: str, *, writing: bool) -> TidemillError:
    """The kind of an error is not always kept: a status in its text is as good."""
    codes = [match[1] for match in (_STATUS.search(text), _CODE.search(text)) if match]
    why = f" ({', '.join(codes) or _reason(text)})"
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or {"401", "403"}.intersection(codes):
        return StoreDenied(f"{place} denies access{why}")
    if not isinstance(error, FileNotFoundError) and "404" not in codes:
        return StoreUnavailable(f"{place} does not answer as it should{why}")
    if writing or "NoSuchBucket" in codes:
        return StoreUnavailable(f"{place} cannot be written: there is no such bucket{why}")
    return UnknownFile(f"there is no stored file {name}")


def _reason(text: str) -> str:
    signs = {
        "kind: Timeout": "it is too slow",
        "timed out": "it is too slow",
        "error sending request": "it cannot be reached, or is too slow",
        "redential": "no credentials were found",
        "must be specified": "its settings in the environment are not complete",
    }
    return next((words for sign, words in signs.items() if sign in text), "no answer")
