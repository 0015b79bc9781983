"""Images in a zip, opened one by one."""

import zipfile
from pathlib import Path

import psutil
import pytest

from tidemill.core.errors import UnknownFile
from tidemill.files.blobs.blob_store import Blob
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.files.formats.image_zip import ImageZipWriter, open_image_of_input


def stored(blobs: FolderBlobStore, images: int) -> Blob:
    with blobs.open_writer() as writing:
        writer = ImageZipWriter(writing)
        for number in range(images):
            writer.start_image(f"{number}.png")
            writer.write(b"%d" % number)
        return writer.finish()


def test_image_zip_directory_is_read_once_for_many_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FolderBlobStore(tmp_path)
    blob = stored(blobs, 10)
    lists: list[Path] = []
    plain = zipfile.ZipFile.__init__

    def counted(self: zipfile.ZipFile, file: Path) -> None:
        lists.append(file)
        plain(self, file)

    monkeypatch.setattr(zipfile.ZipFile, "__init__", counted)
    opened = [open_image_of_input(blobs, blob.id, {"entry": number}) for number in range(10)]
    assert [image.read() for image in opened] == [b"%d" % number for number in range(10)]
    assert len(lists) == 1


def test_image_of_missing_file_raises_unknown_file_every_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(UnknownFile):
            open_image_of_input(FolderBlobStore(tmp_path), "0" * 32, {"entry": 0})


def test_image_zip_cache_closes_old_files_but_not_images_in_use(tmp_path: Path) -> None:
    blobs = FolderBlobStore(tmp_path)
    first = open_image_of_input(blobs, stored(blobs, 1).id, {"entry": 0})
    for _ in range(20):
        open_image_of_input(blobs, stored(blobs, 1).id, {"entry": 0}).close()
    assert len([file for file in psutil.Process().open_files() if file.path.startswith(str(tmp_path))]) <= 5
    assert first.read() == b"0"
