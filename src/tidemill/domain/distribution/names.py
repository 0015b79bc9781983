"""What the file of an input is called: by its values, and never as that of another input, wherever files lie."""

import re
from datetime import datetime

from tidemill.domain.distribution.fields import Input, Plain

STEM_MAX = 120
DIGEST = 10  # hex digits
# Small letters are not among them: ABC and abc are one file on some disks.
_PLAIN = re.compile(r"[A-Z0-9-][A-Z0-9.-]*(_[A-Z0-9.-]+)*")
_LIKE_DIGEST = re.compile(rf"-[0-9A-F]{{{DIGEST}}}$")
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]")
FOLDER = "exports"


def file_name(given: Input, ending: str) -> str:
    """``ABC_20240202_CLS.csv``. Where that does not say it all, a part of the input's hash does."""
    parts = [_word(value) for value in given.values.values()]
    stem = "_".join(parts)
    is_plain = len(stem) <= STEM_MAX and stem.count("_") == len(parts) - 1 and _PLAIN.fullmatch(stem)
    if is_plain and not _LIKE_DIGEST.search(stem):
        return stem + ending
    safe = "_".join(_UNSAFE.sub("_", part) for part in parts)[:STEM_MAX].lstrip(".")
    return f"{safe or 'input'}-{given.key[:DIGEST]}{ending}"


def folder_of(job_key: str, created_at: datetime) -> str:
    """By the day on which the job was made; ``created_at`` is in UTC."""
    return f"{FOLDER}/{created_at:%Y/%m/%d}/{job_key}"


def _word(value: Plain) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return "" if value is None else str(value)
