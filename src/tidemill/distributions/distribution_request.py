"""The parameters of a distribution's job, the names of its files, and the rule for reusing files."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal, TypedDict

from tidemill.core.file_format import Compression, FileFormat
from tidemill.distributions.dataset import DistributionInput, InputValue


@dataclass(frozen=True, slots=True)
class ReusePolicy:
    """When to reuse files. Inputs newer than ``days`` may still change, so their files are regenerated."""

    enabled: bool = True
    days: int = 7


@dataclass(frozen=True, slots=True)
class Artifact:
    """The latest file of an input; ``format`` is its extension, such as ``csv.gz``."""

    path: str
    rows: int
    size: int
    sha256: str
    format: str


def decide_artifact_reuse(
    *, enabled: bool, artifact: Artifact | None, effective_date: date | None, today: date, days: int
) -> Literal["generate", "reuse"]:
    """Decide whether to generate or reuse a file. An input without a date may still change, so generate its file."""
    if not enabled:
        return "generate"
    if artifact is None:
        return "generate"
    if effective_date is None or effective_date > today - timedelta(days=days):
        return "generate"
    return "reuse"


DISTRIBUTION_COLUMNS = ("path", "name", "rows", "size", "sha256", "format", "reused", "dataset", "input_key")


class DistributedFile(TypedDict):
    """The result of an input: its file, and whether the file was reused."""

    path: str
    name: str
    rows: int
    size: int
    sha256: str
    format: str
    reused: bool
    dataset: str
    input_key: str


@dataclass(frozen=True, slots=True)
class DistributionRequest:
    """The parameters of a distribution, which its job stores."""

    dataset: str
    reuse: ReusePolicy
    format: FileFormat
    compression: Compression = Compression.NONE

    @property
    def params(self) -> dict[str, object]:
        return {
            "dataset": self.dataset,
            "reuse": asdict(self.reuse),
            "format": self.format.value,
            "compression": self.compression.value,
        }

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> "DistributionRequest":
        reuse, format_ = ReusePolicy(**params["reuse"]), FileFormat(params["format"])
        return cls(params["dataset"], reuse, format_, Compression(params["compression"]))


ARTIFACT_STEM_MAX_CHARS = 120
ARTIFACT_DIGEST_HEX_DIGITS = 10
# Upper case only: ABC and abc are the same file on some file systems.
_UNAMBIGUOUS_STEM_PATTERN = re.compile(r"[A-Z0-9-][A-Z0-9.-]*(_[A-Z0-9.-]+)*")
_DIGEST_SUFFIX_PATTERN = re.compile(rf"-[0-9A-F]{{{ARTIFACT_DIGEST_HEX_DIGITS}}}$")
_UNSAFE_STEM_CHARS_PATTERN = re.compile(r"[^A-Za-z0-9.-]")
ARTIFACT_ROOT_FOLDER = "exports"


def build_file_name_of_input(given: DistributionInput, ending: str) -> str:
    """Return the name of an input's file, such as ``ABC_20240202_CLS.csv``; if ambiguous, add a part of its hash."""
    parts = [_format_name_part(value) for value in given.values.values()]
    stem = "_".join(parts)
    is_plain = (
        len(stem) <= ARTIFACT_STEM_MAX_CHARS
        and stem.count("_") == len(parts) - 1
        and _UNAMBIGUOUS_STEM_PATTERN.fullmatch(stem)
    )
    if is_plain and not _DIGEST_SUFFIX_PATTERN.search(stem):
        return stem + ending
    safe = "_".join(_UNSAFE_STEM_CHARS_PATTERN.sub("_", part) for part in parts)[:ARTIFACT_STEM_MAX_CHARS].lstrip(".")
    return f"{safe or 'input'}-{given.key[:ARTIFACT_DIGEST_HEX_DIGITS]}{ending}"


def build_artifact_folder_of_job(job_key: str, created_at: datetime) -> str:
    """Return the folder of a job's files, which contains the date of creation; ``created_at`` is in UTC."""
    return f"{ARTIFACT_ROOT_FOLDER}/{created_at:%Y/%m/%d}/{job_key}"


def _format_name_part(value: InputValue) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return "" if value is None else str(value)
