"""Stores the files of an upload while its chunks arrive, and detects their format by media type and name."""

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Self

from tidemill.core.errors import InvalidInput, TooLarge
from tidemill.files.blobs.blob_store import Blob, BlobWriter
from tidemill.files.formats.image_zip import ImageZipWriter, clean_file_name_for_display
from tidemill.files.layout import FORMATS_BY_SUFFIX, KNOWN_FORMATS
from tidemill.jobs.work_gates import run_in_upload_thread
from tidemill.rest.problems import HttpError

UPLOAD_BUFFER_BYTES = 1 << 20  # written in chunks of this size, each in a thread
UPLOAD_FORMAT_BY_MEDIA_TYPE = {
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/zip": "images",
    "application/x-zip-compressed": "images",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.apache.parquet": "parquet",
}


@dataclass
class UploadedFile:
    """A stored file and the form fields of its request."""

    blob: Blob
    format: str
    name: str
    fields: dict[str, str] = field(default_factory=dict)
    content_type: str = ""


class UploadReceiver:
    """Stores the files of one request and removes an incomplete file."""

    def __init__(self, writing: BlobWriter, *, max_bytes: int, accept_any_type: bool = False) -> None:
        self._accept_any_type = accept_any_type
        self._stack = ExitStack()
        self._writing = self._stack.enter_context(writing)
        self._images: ImageZipWriter | None = None
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._received_bytes = 0
        self.format: str | None = None
        self.media_type = ""
        self.name = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await run_in_upload_thread(self._stack.close)

    async def begin_file(self, name: str, media_type: str, declared_format: str | None = None) -> None:
        """Start a file. A request may have several images, but only one file of another type."""
        if self._accept_any_type:
            self._begin_file_of_detected_type(name, media_type)
            return
        is_image = media_type.startswith("image/") and declared_format in (None, "images")
        if self.format is not None and not (is_image and self._images is not None):
            raise InvalidInput("Upload only one file, or only images")
        if is_image:
            await self._flush()
            self._images = self._images or self._stack.enter_context(closing(ImageZipWriter(self._writing)))
            self._images.start_image(name)
        self.format = (
            "images"
            if is_image
            else _validate_format(declared_format) or _get_format_from_type_or_name(media_type, name)
        )
        self.name = self.name or clean_file_name_for_display(name)

    def _begin_file_of_detected_type(self, name: str, media_type: str) -> None:
        """Start a file whose type is detected after it is stored."""
        if self.format is not None:
            raise InvalidInput("Upload only one file")
        self.format, self.media_type = "", media_type
        self.name = clean_file_name_for_display(name)

    async def write(self, chunk: bytes) -> None:
        self._received_bytes += len(chunk)
        if self._received_bytes > self._max_bytes:
            raise TooLarge(f"The file is larger than {self._max_bytes >> 20} MB")
        self._buffer += chunk
        if len(self._buffer) >= UPLOAD_BUFFER_BYTES:
            await self._flush()

    async def finish(self) -> Blob:
        if self.format is None:
            raise InvalidInput("The request contains no file")
        await self._flush()
        return await run_in_upload_thread((self._images or self._writing).finish)

    async def _flush(self) -> None:
        piece, self._buffer = bytes(self._buffer), bytearray()
        if piece:
            await run_in_upload_thread((self._images or self._writing).write, piece)


def _validate_format(format_: str | None) -> str | None:
    if format_ is not None and format_ not in KNOWN_FORMATS:
        raise InvalidInput(f'Unknown format "{format_}". Known formats: {", ".join(KNOWN_FORMATS)}.')
    return format_


def _get_format_from_type_or_name(media_type: str, name: str) -> str:
    format_ = UPLOAD_FORMAT_BY_MEDIA_TYPE.get(media_type) or FORMATS_BY_SUFFIX.get(PurePath(name).suffix.lower())
    if format_ is None:
        known = ", ".join(["application/json", "multipart/form-data", *UPLOAD_FORMAT_BY_MEDIA_TYPE])
        raise HttpError(415, f'Unsupported content type "{media_type}". Send {known} or an image.')
    return format_
