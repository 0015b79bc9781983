"""Files in the configured source folders. A submission can refer to these files only."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tidemill.core.errors import InvalidInput, TooLarge
from tidemill.files.blobs.blob_store import iter_chunks


def resolve_source_file(folders: Mapping[str, Path], name: str, path: str) -> Path:
    """Return the path of a file in a configured folder; InvalidInput if it does not exist or is outside the folder."""
    folder = folders.get(name)
    if folder is None:
        known = ", ".join(sorted(folders)) or "none"
        raise InvalidInput(f'Unknown source "{name}". Configured sources: {known}.')
    missing = InvalidInput(f'Source "{name}" has no file "{path}"')
    try:
        root = folder.resolve(strict=True)
        file = (root / path).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise missing from None
    if not file.is_relative_to(root) or not file.is_file():
        raise missing
    return file


def iter_source_file_chunks(path: Path, max_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the content of a file; TooLarge above ``max_bytes``. Counts while it reads, since the file may grow."""
    size = 0
    try:
        with path.open("rb") as file:
            for piece in iter_chunks(file):
                size += len(piece)
                if max_bytes is not None and size > max_bytes:
                    raise TooLarge(f"The file is larger than {max_bytes >> 20} MB")
                yield piece
    except OSError as error:
        raise InvalidInput(f"Cannot read the file {path.name!r}: {error.strerror}") from error
