"""A distribution, as its job keeps it."""

from dataclasses import asdict, dataclass
from typing import Any

from tidemill.domain.distribution.reuse import Reuse
from tidemill.domain.form import Compression, FileFormat

KIND = "tidemill.distribute"
MAX_INPUTS = 100_000
COLUMNS = ("path", "name", "rows", "size", "sha256", "format", "reused", "dataset", "input_key")


@dataclass(frozen=True, slots=True)
class DistributionRequest:
    """What somebody wants of a dataset."""

    dataset: str
    reuse: Reuse
    format: FileFormat
    compression: Compression = Compression.NONE

    @property
    def params(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "reuse": asdict(self.reuse),
            "format": self.format.value,
            "compression": self.compression.value,
        }

    @classmethod
    def of(cls, params: dict[str, Any]) -> "DistributionRequest":
        reuse, format_ = Reuse(**params["reuse"]), FileFormat(params["format"])
        return cls(params["dataset"], reuse, format_, Compression(params["compression"]))
