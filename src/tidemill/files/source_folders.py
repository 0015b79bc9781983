"""Files in configured folders: what a submission may refer to, and nothing else."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tidemill.core.errors import InvalidInput, TooLarge
from tidemill.files.blobs.blob_store import iter_chunks


def resolve_source_file(folders: Mapping[str, Path], name: str, path: str) -> Path:
    """A file inside the folder of that name. Links and dots that lead out of it lead nowhere."""
    folder = folders.get(name)
    if folder is None:
        known = ", ".join(sorted(folders)) or "none"
        raise InvalidInput(f"there is no source {name!r}; configured are: {known}")
    missing = InvalidInput(f"there is no file {path!r} in source {name!r}")
    try:
        root = folder.resolve(strict=True)
        found = (root / path).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise missing from None
    if not found.is_relative_to(root) or not found.is_file():
        raise missing
    return found


def read_source_file(path: Path, max_bytes: int | None = None) -> Iterator[bytes]:
    """What is in a file, counted as it comes: what it says of its size need not be so, or not any more."""
    size = 0
    try:
        with path.open("rb") as file:
            for piece in iter_chunks(file):
                size += len(piece)
                if max_bytes is not None and size > max_bytes:
                    raise TooLarge(f"the file has more than {max_bytes >> 20} MB")
                yield piece
    except OSError as error:
        raise InvalidInput(f"the file {path.name!r} cannot be read: {error.strerror}") from error
