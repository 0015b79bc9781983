"""The blob store in a bucket: S3 and compatible stores, Google Cloud Storage, Azure."""

import hashlib
import io
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError, GenericError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from tidemill.core.blob_location import BucketLocation, check_blob_name, is_blob_name
from tidemill.core.errors import (
    StorageAccessDenied,
    StorageUnavailable,
    TidemillError,
    TooLarge,
    Unavailable,
    UnknownFile,
)
from tidemill.files.blobs.blob_store import Blob, BlobStore, BlobWriter, DownloadLabel, remove_stale_tmp_files

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


OBJECT_CHUNK_BYTES = 1 << 20
OBJECT_READ_LIMITS = ObjectStoreLimits(request_s=300.0, tries=3, all_tries_s=20.0)  # the time of a complete object


def iter_object_chunks(place: BucketLocation, key: str, max_bytes: int) -> Iterator[bytes]:
    """Yield the content of an object that Tidemill did not write; its key is relative to the prefix of the location.

    Raises:
        UnknownFile: The object does not exist.
        TooLarge: The object has more than ``max_bytes``.
        Unavailable: The store cannot be read.
    """
    with translate_store_errors(place, key):
        found = obstore.get(open_object_store(place, OBJECT_READ_LIMITS), place.key_for(key))
        if found.meta["size"] > max_bytes:
            raise TooLarge(f"The file is larger than {max_bytes >> 20} MB")
        for piece in found.stream(min_chunk_size=OBJECT_CHUNK_BYTES):
            yield bytes(piece)


RANGE_READ_MIN_BYTES, RANGE_READ_MAX_BYTES = 64 << 10, 8 << 20


class RangeSource(Protocol):
    """Reads ranges of bytes; ``end`` is exclusive."""

    size: int

    def read(self, start: int, end: int) -> bytes: ...

    def close(self) -> None: ...


class RangeReader(io.RawIOBase):
    """Reads a source as a seekable file. Holds one range in memory at a time."""

    def __init__(self, ranges: RangeSource) -> None:
        self._ranges = ranges
        self._at = 0
        self._start, self._held = 0, b""
        self._ahead = RANGE_READ_MIN_BYTES

    def close(self) -> None:
        if not self.closed:
            self._ranges.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._ranges.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        if self._at >= self._ranges.size:
            return 0
        if not self._start <= self._at < self._start + len(self._held):
            self._fetch_range(len(buffer))
        begin = self._at - self._start
        piece = self._held[begin : begin + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _fetch_range(self, wanted: int) -> None:
        goes_on = self._at == self._start + len(self._held)
        self._ahead = min(self._ahead * 2, RANGE_READ_MAX_BYTES) if goes_on else RANGE_READ_MIN_BYTES
        end = min(self._at + max(self._ahead, min(wanted, RANGE_READ_MAX_BYTES)), self._ranges.size)
        self._start, self._held = self._at, b""  # free the old range before the next one is read
        self._held = self._ranges.read(self._at, end)


if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, ObjectMeta, WritableFile

UPLOAD_PART_BYTES = 8 << 20  # a smaller file is a single put; at most 10,000 parts, so 80 GB
UPLOAD_PARTS_IN_FLIGHT = 2  # in memory, in addition to the part that is being filled
_RANGE_IGNORED_TEXT = "non-partial"  # in the client's error for a response that ignores the range


class BucketHandle(Protocol):
    """The parts of a bucket store that its readers and writers use."""

    location: BucketLocation
    supports_ranges: bool  # True until the store ignores a range

    @property
    def client(self) -> ObjectStoreClient: ...

    def remove(self, name: str) -> None: ...


class BucketObjectRanges:
    """Reads ranges of one object. Raises if the object is replaced while it is read, so that versions never mix."""

    def __init__(self, shelf: BucketHandle, name: str, meta: "ObjectMeta") -> None:
        self.size = meta["size"]
        self._shelf = shelf
        self._name = name
        self._meta = meta
        self._whole: BinaryIO | None = None

    def close(self) -> None:
        if self._whole is not None:
            self._whole.close()

    def read(self, start: int, end: int) -> bytes:
        with translate_store_errors(self._shelf.location, self._name):
            if self._shelf.supports_ranges or end - start == self.size:
                with _disable_ranges_if_ignored(self._shelf):
                    return self._read_range(start, end)
            if self._whole is None:
                self._whole = self._download_to_file()
        self._whole.seek(start)
        return self._whole.read(end - start)

    def _read_range(self, start: int, end: int) -> bytes:
        options: GetOptions = {"if_match": self._meta["e_tag"]}
        if end - start < self.size:
            options["range"] = (start, end)
        return bytes(obstore.get(self._shelf.client, self._meta["path"], options=options).bytes())

    def _download_to_file(self) -> BinaryIO:
        """Download the whole object to an anonymous file, for a store that does not support ranges."""
        file = tempfile.TemporaryFile()  # noqa: SIM115  close() closes it
        try:
            options: GetOptions = {"if_match": self._meta["e_tag"]}
            for piece in obstore.get(self._shelf.client, self._meta["path"], options=options):
                file.write(piece)
        except BaseException:
            file.close()
            raise
        return file


@contextmanager
def _disable_ranges_if_ignored(shelf: BucketHandle) -> Iterator[None]:
    """Stop requesting ranges after the store ignored one."""
    try:
        yield
    except GenericError as error:
        if _RANGE_IGNORED_TEXT not in str(error):
            raise
        shelf.supports_ranges = False


class BucketBlobWriter(BlobWriter):
    """Uploads in parts, or with a single put if the file is small. The object becomes visible at the end."""

    def __init__(self, shelf: BucketHandle, name: str) -> None:
        super().__init__(name)
        self._shelf = shelf
        self._writer: WritableFile | None = None

    def _append(self, piece: bytes) -> None:
        with translate_store_errors(self._shelf.location, self.name, writing=True):
            self._get_or_open_upload().write(piece)

    def _complete(self) -> None:
        with translate_store_errors(self._shelf.location, self.name, writing=True):
            self._get_or_open_upload().close()

    def _remove_written(self) -> None:
        if self._is_finished:
            self._shelf.remove(self.name)
        elif self._writer is not None and not self._writer.closed():
            # If the abort fails, a lifecycle rule of the bucket removes the upload: see docs/reference/storage.md.
            with suppress(Unavailable), translate_store_errors(self._shelf.location, self.name, writing=True):
                self._writer.__exit__(StorageUnavailable, None, None)

    def _get_or_open_upload(self) -> "WritableFile":
        if self._writer is None:
            key, about = self._shelf.location.key_for(self.name), make_download_attributes(self.label)
            self._writer = obstore.open_writer(
                self._shelf.client,
                key,
                attributes=about,
                buffer_size=UPLOAD_PART_BYTES,
                max_concurrency=UPLOAD_PARTS_IN_FLIGHT,
            )
        return self._writer


def make_download_attributes(label: DownloadLabel | None) -> "Attributes | None":
    """Return the headers that the store sends when a browser downloads the object."""
    if label is None:
        return None
    shown = "".join(
        sign if sign.isascii() and sign.isprintable() and sign not in '"\\' else "_" for sign in label.file_name
    )
    return {"Content-Disposition": f'attachment; filename="{shown}"', "Content-Type": label.content_type}


if TYPE_CHECKING:
    from obstore import ObjectMeta

BUCKET_CHECK_THREADS = 8
_client_process: dict[str, int] = {}  # the process that owns the client's threads


class BucketBlobStore(BlobStore):
    """Blobs in a bucket. A single request makes a blob visible: a put, or the end of a multipart upload."""

    def __init__(
        self,
        place: BucketLocation,
        limits: ObjectStoreLimits | None = None,
        *,
        scratch_folder: Path | None = None,
        open_store: Callable[[BucketLocation, ObjectStoreLimits], ObjectStoreClient] = open_object_store,
    ) -> None:
        self.location = place
        self.supports_ranges = True
        self._limits = limits or ObjectStoreLimits()
        self._scratch = scratch_folder
        self._open_store = open_store
        self._opened: ObjectStoreClient | None = None
        self._lock = threading.Lock()

    @property
    def client(self) -> ObjectStoreClient:
        """The client, opened on first use. The client's threads do not survive a fork."""
        with self._lock:
            if _client_process.setdefault("pid", os.getpid()) != os.getpid():
                raise StorageUnavailable(
                    f"Cannot use {self.location} in a forked process. Start a new process instead of forking."
                )
            if self._opened is None:
                with translate_store_errors(self.location, ""):
                    self._opened = self._open_store(self.location, self._limits)
            return self._opened

    @property
    def scratch_folder(self) -> Path:
        """A folder in the temporary directory of this machine that only this user can read."""
        folder = self._scratch or Path(tempfile.gettempdir()) / f"tidemill-{os.getuid()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise StorageUnavailable(f"Scratch folder {folder} is owned by another user")
        return folder

    def open_writer(self, name: str | None = None) -> BucketBlobWriter:
        return BucketBlobWriter(self, check_blob_name(name or uuid4().hex))

    def publish_scratch_file(self, path: Path, name: str) -> Blob:
        return self.read_size_and_hash(name) if self.has(name) else self.put_file(path, name)

    def copy(self, name: str, to: str) -> None:
        source, target = self._object_key(name), self._object_key(to)
        with translate_store_errors(self.location, name):
            obstore.copy(self.client, source, target)

    def open(self, name: str) -> BinaryIO:
        return io.BufferedReader(
            RangeReader(BucketObjectRanges(self, name, self._read_metadata(name))), RANGE_READ_MIN_BYTES
        )

    def size(self, name: str) -> int:
        return self._read_metadata(name)["size"]

    def has(self, name: str) -> bool:
        try:
            self._read_metadata(name)
        except UnknownFile:
            return False
        return True

    def remove_many(self, names: Iterable[str]) -> list[str]:
        valid = [name for name in names if is_blob_name(name)]
        with ThreadPoolExecutor(BUCKET_CHECK_THREADS) as threads:
            here = [name for name, is_here in zip(valid, threads.map(self.has, valid), strict=True) if is_here]
        self._delete(here)
        return here

    def remove(self, name: str) -> None:
        self._delete([name])

    def remove_stale_scratch_files(self, age_s: float) -> list[str]:
        """Remove stale local files. A lifecycle rule of the bucket removes unfinished uploads."""
        return remove_stale_tmp_files(self.scratch_folder, age_s)

    async def upload_in_one_request_if_supported(self, name: str, data: bytes, label: DownloadLabel) -> Blob:
        key = self._object_key(name)
        with translate_store_errors(self.location, name, writing=True):
            await obstore.put_async(
                self.client, key, data, attributes=make_download_attributes(label), use_multipart=False
            )
        return Blob(name, len(data), hashlib.sha256(data).digest())

    def list_names(self, below: str = "", *, after: str = "") -> Iterator[str]:
        top = self._object_key(below) if below else self.location.prefix
        skipped = len(self.location.prefix) + 1 if self.location.prefix else 0
        with translate_store_errors(self.location, below):
            for batch in obstore.list(
                self.client, prefix=top or None, offset=self._object_key(after) if after else None
            ):
                yield from filter(is_blob_name, (meta["path"][skipped:] for meta in batch))

    def url(self, name: str) -> str:
        return self.location.url_for(check_blob_name(name))

    def presign_url(self, name: str, seconds: int) -> str | None:
        """Return a signed link; None if the credentials of this process cannot sign."""
        key, store = self._object_key(name), self.client
        try:
            return obstore.sign(store, "GET", key, timedelta(seconds=seconds))
        except (BaseError, OSError, ValueError):
            return None

    def _read_metadata(self, name: str) -> "ObjectMeta":
        key = self._object_key(name)
        with translate_store_errors(self.location, name):
            return obstore.head(self.client, key)

    def _delete(self, names: list[str]) -> None:
        keys = [self._object_key(name) for name in names]
        if keys:
            with suppress(UnknownFile), translate_store_errors(self.location, names[0]):
                obstore.delete(self.client, keys)

    def _object_key(self, name: str) -> str:
        return self.location.key_for(check_blob_name(name))
