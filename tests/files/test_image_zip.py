"""Images in a zip: every entry becomes an item or a defect, and the others continue."""

import io
import zipfile

import pytest

from tidemill.core.errors import TidemillError
from tidemill.files.formats.image_zip import ImageZipReader

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x20\x00\x00\x00\x10" + bytes(range(64))
HEADS = {
    "png": PNG,
    "gif": b"GIF89a\x20\x00\x10\x00 and so on",
    "bmp": b"BM" + bytes(16) + b"\x20\x00\x00\x00\x10\x00\x00\x00",
    "webp": b"RIFF\x00\x00\x00\x00WEBPVP8X" + bytes(14),
    "lossy": b"RIFF\x00\x00\x00\x00WEBPVP8 " + bytes(14),
    "lossless": b"RIFF\x00\x00\x00\x00WEBPVP8L" + bytes(9),
    "jpeg": b"\xff\xd8\xff\xe0\x00\x04xx\xff\xc0\x00\x11\x08\x00\x10\x00\x20 and so on",
}


def zipped(entries: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def read(data: bytes) -> list[str | None]:
    """Return the defect of each entry, or None."""
    source = ImageZipReader(io.BytesIO(data), "blob", {})
    block = source.read(100, 1 << 20)
    return [block.defects[at]["reason"] if at in block.defects else None for at in range(len(block.inputs))]


@pytest.mark.parametrize("kind", HEADS)
def test_image_truncated_at_any_byte_is_still_one_entry(kind: str) -> None:
    whole = HEADS[kind]
    assert read(zipped({"whole": whole})) == [None]
    for length in range(len(whole)):
        assert len(read(zipped({"cut": whole[:length], "whole": whole}))) == 2


def test_metadata_of_macos_in_an_image_zip_is_ignored() -> None:
    metadata = {"__MACOSX/._a.png": b"\0", "shop/.DS_Store": b"\0", "shop/__MACOSX/._b.png": b"\0"}
    assert read(zipped({"shop/a.png": PNG, **metadata, "shop/b.png": PNG})) == [None, None]


def test_damaged_image_entry_fails_alone() -> None:
    data = bytearray(zipped({"a.png": PNG, "b.png": PNG, "c.png": PNG}))
    middle = data.index(b"b.png") + len(b"b.png")
    data[middle : middle + 8] = b"\xff" * 8
    first, second, third = read(bytes(data))
    assert (first, third) == (None, None)
    assert second is not None
    assert second.startswith("Cannot decompress the image: error: ")


def test_damaged_image_zip_raises_only_tidemill_errors() -> None:
    data = zipped({"a.png": PNG, "b.gif": HEADS["gif"]})
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        try:
            read(damaged)
        except TidemillError as error:
            assert str(error)  # noqa: PT017  any other exception fails the test
