"""Opens the client of an object store with its limits, and translates its errors."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from tidemill.core.blob_location import BucketLocation
from tidemill.core.errors import StorageAccessDenied, StorageUnavailable, TidemillError, UnknownFile

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

ObjectStoreClient = S3Store | GCSStore | AzureStore
_STATUS_CODE = re.compile(r"status code: (\d{3})")
_ERROR_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


@dataclass(frozen=True, slots=True)
class ObjectStoreLimits:
    """Timeouts and retries. The client retries after connection errors and server errors."""

    connect_s: float = 5.0
    request_s: float = 60.0  # enough for a part of 8 MB
    tries: int = 5
    all_tries_s: float = 60.0


def open_object_store(
    place: BucketLocation, limits: ObjectStoreLimits, config: Mapping[str, str] | None = None
) -> ObjectStoreClient:
    """Return a client with the credentials in the environment. It uses plain HTTP only if the endpoint's URL does.

    ``config`` (S3 only) overrides the environment: ``endpoint``, ``region``, ``access_key_id``, …
    """
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=limits.connect_s),
        "timeout": timedelta(seconds=limits.request_s),
        "user_agent": "tidemill",
        "default_content_type": "application/octet-stream",
    }
    endpoint = (config or {}).get("endpoint")
    if _is_plain_http_url(endpoint) if endpoint else _is_endpoint_plain_http(place.scheme):
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


def _is_endpoint_plain_http(scheme: str) -> bool:
    names = {
        "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "gs": ("GOOGLE_BASE_URL",),
        "az": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
    }
    urls = (os.environ.get(name) for name in names.get(scheme, ()))
    return any(url is not None and _is_plain_http_url(url) for url in urls)


def _is_plain_http_url(url: str) -> bool:
    return url.lower().startswith("http://")


@contextmanager
def translate_store_errors(place: BucketLocation, name: str, *, writing: bool = False) -> Iterator[None]:
    """Translate errors of the client. Its messages contain addresses, ids and dumps, so only codes are kept."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        raise _translate_store_error(error, str(error), place, name, writing=writing) from None


def _translate_store_error(
    error: Exception, text: str, place: BucketLocation, name: str, *, writing: bool
) -> TidemillError:
    """The client does not always raise the specific error type, so also use the status code in its message."""
    codes = [match[1] for match in (_STATUS_CODE.search(text), _ERROR_CODE.search(text)) if match]
    why = f" ({', '.join(codes) or _describe_failure(text)})"
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or {"401", "403"}.intersection(codes):
        return StorageAccessDenied(f"Access to {place} denied{why}")
    if not isinstance(error, FileNotFoundError) and "404" not in codes:
        return StorageUnavailable(f"Request to {place} failed{why}")
    if writing or "NoSuchBucket" in codes:
        return StorageUnavailable(f"Cannot write to {place}: the bucket does not exist{why}")
    return UnknownFile(f'The blob store has no file "{name}"')


def _describe_failure(text: str) -> str:
    signs = {
        "kind: Timeout": "timeout",
        "timed out": "timeout",
        "error sending request": "unreachable or timeout",
        "redential": "no credentials found",
        "must be specified": "incomplete settings in the environment",
    }
    return next((reason for sign, reason in signs.items() if sign in text), "no response")
