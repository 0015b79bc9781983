"""Images in a zip file, one item per entry. The item describes the image and refers to its entry."""

import struct
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import IO, BinaryIO, TypedDict

import msgspec

from tidemill.core.decide import describe_exception
from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import Checkpoint, InputDefect
from tidemill.files.blobs.blob_store import Blob, BlobStore, BlobWriter
from tidemill.files.compression import ZIP_ENTRIES_MAX, is_zip_file_of_user, open_zip
from tidemill.files.formats.block_reader import EncodedRecord, RecordReader

IMAGE_HEADER_BYTES = 64 * 1024  # read to find the size of an image; images are not fully decompressed here
IMAGE_NAME_MAX_CHARS = 1_000
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


class ImageInfo(TypedDict):
    """The content type of an image, and its size in pixels if the header has it."""

    content_type: str
    width: int | None
    height: int | None


class ImageZipReader(RecordReader):
    """Reads images. A checkpoint is the number of the next entry."""

    def __init__(self, file: BinaryIO, blob: str, checkpoint: Checkpoint) -> None:
        self._file = file
        self._blob = blob
        super().__init__(checkpoint)

    def close(self) -> None:
        self._file.close()

    def _iter_records(self, checkpoint: Checkpoint) -> Iterator[EncodedRecord]:
        archive = open_zip(self._file)
        entries = archive.infolist()
        for number in range(checkpoint.get("entry", 0), len(entries)):
            if is_zip_file_of_user(entries[number]):
                yield self._make_record(archive, entries[number], number)

    def _make_record(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, number: int) -> EncodedRecord:
        name = clean_file_name_for_display(entry.filename)
        described: dict[str, object] = {"name": name, "size": entry.file_size, "blob": self._blob, "entry": number}
        defect: InputDefect | None = None
        try:
            with archive.open(entry) as file:
                described |= parse_image_info(file.read(IMAGE_HEADER_BYTES))
        except Exception as error:  # noqa: BLE001  decompressors raise many types; only this entry is invalid
            reason = (
                str(error)
                if isinstance(error, InvalidInput)
                else f"Cannot decompress the image: {describe_exception(error)}"
            )
            defect = {"line": number + 1, "code": "invalid", "reason": reason, "value": name[:200]}
        return EncodedRecord(msgspec.json.encode(described), number + 1, {"entry": number + 1}, defect)


class ImageZipWriter:
    """Writes uploaded images to a zip file as they arrive. The same images give the same file."""

    def __init__(self, writing: BlobWriter) -> None:
        self._writing = writing
        self._archive = zipfile.ZipFile(_ForwardOnlyFile(writing), "w", zipfile.ZIP_STORED)
        self._entry: IO[bytes] | None = None
        self.count = 0

    def start_image(self, name: str) -> None:
        self.end_image()
        self.count += 1
        if self.count > ZIP_ENTRIES_MAX:
            raise InvalidInput(f"Too many images. Upload at most {ZIP_ENTRIES_MAX} at a time.")
        entry = zipfile.ZipInfo(clean_file_name_for_display(name) or f"image {self.count}", _ZIP_EPOCH)
        self._entry = self._archive.open(entry, "w", force_zip64=True)

    def write(self, piece: bytes) -> None:
        if self._entry is not None:
            self._entry.write(piece)

    def end_image(self) -> None:
        if self._entry is not None:
            self._entry.close()
            self._entry = None

    def close(self) -> None:
        self.end_image()
        self._archive.close()

    def finish(self) -> Blob:
        self.close()
        return self._writing.finish()


class _ForwardOnlyFile:
    """A file that cannot seek, because written data is hashed already."""

    def __init__(self, writing: BlobWriter) -> None:
        self.write = writing.write
        self.flush = writing.flush

    def close(self) -> None:
        """Do nothing: the code that opened the file closes it."""


def open_image_of_input(blobs: BlobStore, file_id: str, reference: object) -> IO[bytes]:
    """Open the entry of a stored file that the input of an item refers to; InvalidInput if there is none.

    The input can come from a user, so it selects the entry only, never the file.
    """
    entries = (archive := _get_cached_archive(blobs, file_id)).infolist()
    entry = reference.get("entry") if isinstance(reference, Mapping) else None
    if not isinstance(entry, int) or not 0 <= entry < len(entries):
        raise InvalidInput("The input of the item refers to no uploaded image")
    return archive.open(entries[entry])


@lru_cache(maxsize=4)
def _get_cached_archive(blobs: BlobStore, name: str) -> zipfile.ZipFile:
    """Return a cached archive: reading its directory takes 0.5 s for 65,000 entries."""
    file = blobs.open(name)
    archive = open_zip(file)
    weakref.finalize(
        archive, file.close
    )  # ZipFile does not close a file that it was given; open images keep the archive alive
    return archive


def clean_file_name_for_display(name: str) -> str:
    """Return a name for display; it is never used as a path."""
    text = name.encode(errors="replace").decode().replace("\\", "/")
    return "".join(letter for letter in text if letter.isprintable())[:IMAGE_NAME_MAX_CHARS]


def parse_image_info(head: bytes) -> ImageInfo:
    """Return the type and size of an image from its first bytes; InvalidInput if the type is not supported."""
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR" and len(head) >= 24:  # noqa: PLR2004
        return _make_image_info("image/png", *struct.unpack_from(">LL", head, 16))
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:  # noqa: PLR2004
        return _make_image_info("image/gif", *struct.unpack_from("<HH", head, 6))
    if head.startswith(b"BM") and len(head) >= 26:  # noqa: PLR2004
        width, height = struct.unpack_from("<ll", head, 18)
        return _make_image_info("image/bmp", width, abs(height))
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _parse_webp_info(head)
    if head.startswith(b"\xff\xd8"):
        return _parse_jpeg_info(head)
    if head[:4] in (b"II*\x00", b"MM\x00*"):
        return _make_image_info("image/tiff", None, None)
    raise InvalidInput("Not a supported image. Supported types are PNG, JPEG, GIF, WebP, BMP and TIFF.")


def _make_image_info(content_type: str, width: int | None, height: int | None) -> ImageInfo:
    return {"content_type": content_type, "width": width, "height": height}


def _parse_webp_info(head: bytes) -> ImageInfo:
    if head[12:16] == b"VP8X" and len(head) >= 30:  # noqa: PLR2004
        sides = (1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little"))
        return _make_image_info("image/webp", *sides)
    if head[12:16] == b"VP8 " and len(head) >= 30:  # noqa: PLR2004
        width, height = struct.unpack_from("<HH", head, 26)
        return _make_image_info("image/webp", width & 0x3FFF, height & 0x3FFF)
    if head[12:16] == b"VP8L" and len(head) >= 25:  # noqa: PLR2004
        bits = int.from_bytes(head[21:25], "little")
        return _make_image_info("image/webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    return _make_image_info("image/webp", None, None)


def _parse_jpeg_info(head: bytes) -> ImageInfo:
    """Scan the segments for the one with the size."""
    at = 2
    while at + 9 < len(head) and head[at] == 0xFF:  # noqa: PLR2004
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004
            height, width = struct.unpack_from(">HH", head, at + 5)
            return _make_image_info("image/jpeg", width, height)
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return _make_image_info("image/jpeg", None, None)
