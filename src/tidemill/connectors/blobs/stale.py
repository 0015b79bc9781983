"""Halves of files whose writers are gone."""

import os
import tempfile
from pathlib import Path


def remove_stale(folder: Path, age_s: float) -> list[str]:
    """Remove unfinished files that nobody has written to for so long; which. The folder's own clock decides."""
    if not folder.is_dir():
        return []
    with tempfile.TemporaryFile(dir=folder) as probe:
        now = os.fstat(probe.fileno()).st_mtime
    stale = [path for path in folder.glob("*.tmp") if _written_at(path) < now - age_s]
    for path in stale:
        path.unlink(missing_ok=True)
    return [path.name for path in stale]


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # finished meanwhile
        return float("inf")
