"""Images in a zip, opened one by one."""

import zipfile
from pathlib import Path

import psutil
import pytest

from tidemill.connectors.blobs import Blob, Folder
from tidemill.connectors.images import ImagesWriter, open_image
from tidemill.domain.errors import UnknownFile


def stored(blobs: Folder, images: int) -> Blob:
    with blobs.write() as writing:
        writer = ImagesWriter(writing)
        for number in range(images):
            writer.begin(f"{number}.png")
            writer.write(b"%d" % number)
        return writer.finish()


def test_the_list_of_a_zip_is_read_once_however_many_of_its_images_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Folder(tmp_path)
    blob = stored(blobs, 10)
    lists: list[Path] = []
    plain = zipfile.ZipFile.__init__

    def counted(self: zipfile.ZipFile, file: Path) -> None:
        lists.append(file)
        plain(self, file)

    monkeypatch.setattr(zipfile.ZipFile, "__init__", counted)
    opened = [open_image(blobs, {"blob": blob.id, "entry": number}) for number in range(10)]
    assert [image.read() for image in opened] == [b"%d" % number for number in range(10)]
    assert len(lists) == 1


def test_an_image_of_a_file_that_is_gone_is_an_error_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(UnknownFile):
            open_image(Folder(tmp_path), {"blob": "0" * 32, "entry": 0})


def test_files_of_many_zips_are_closed_but_for_those_of_the_last_few_and_of_images_in_use(tmp_path: Path) -> None:
    blobs = Folder(tmp_path)
    first = open_image(blobs, {"blob": stored(blobs, 1).id, "entry": 0})
    for _ in range(20):
        open_image(blobs, {"blob": stored(blobs, 1).id, "entry": 0}).close()
    assert len([file for file in psutil.Process().open_files() if file.path.startswith(str(tmp_path))]) <= 5
    assert first.read() == b"0"
