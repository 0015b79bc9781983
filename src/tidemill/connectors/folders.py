"""Files in configured folders: what a submission may refer to, and nothing else."""

from collections.abc import Mapping
from pathlib import Path

from tidemill.domain.errors import InvalidInput


def find(folders: Mapping[str, Path], name: str, path: str) -> Path:
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
