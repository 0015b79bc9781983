"""What an export is asked for: a job's rows as a file. Of tables, see ``exporting``."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from tidemill.domain import form
from tidemill.domain.errors import InvalidInput
from tidemill.domain.handler import OWN_KINDS
from tidemill.domain.status import ItemStatus, parse_item_status

KIND = f"{OWN_KINDS}export"


class Format(StrEnum):
    CSV = "csv"
    XLSX = "xlsx"
    NDJSON = "ndjson"


CONTENT_TYPES = {format_: form.CONTENT_TYPES[form.FileFormat(format_)] for format_ in Format}


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """Which rows of which job, as what. ``spreadsheet_safe`` keeps text from being read as a formula."""

    job_id: UUID
    format: Format
    statuses: tuple[ItemStatus, ...] = ()
    spreadsheet_safe: bool = False

    @classmethod
    def of(cls, job_id: UUID, format_: str, statuses: Iterable[str] = (), *, spreadsheet_safe: bool = False) -> Self:
        """Statuses in any order and case; none of them means all."""
        if format_ not in Format.__members__.values():
            raise InvalidInput(f"there is no format {format_!r}; known are {', '.join(Format)}")
        try:
            wanted = {parse_item_status(word) for word in statuses}
        except ValueError as error:
            raise InvalidInput(str(error)) from error
        return cls(job_id, Format(format_), tuple(sorted(wanted)), spreadsheet_safe)

    @classmethod
    def parse(cls, value: dict[str, Any]) -> Self:
        """From an item's input."""
        return cls.of(
            UUID(value["job_id"]), value["format"], value["statuses"], spreadsheet_safe=value["spreadsheet_safe"]
        )

    def input(self) -> dict[str, Any]:
        """As an item's input."""
        request: dict[str, Any] = {"job_id": str(self.job_id), "format": self.format}
        return request | {"statuses": list(self.statuses), "spreadsheet_safe": self.spreadsheet_safe}

    def file_name(self, job_key: str) -> str:
        return "-".join((job_key, *self.statuses)) + f".{self.format}"


def file_id(export_job_id: UUID) -> str:
    """The stored file of an export has the export's own name: another attempt replaces it, nothing is left over."""
    return export_job_id.hex


def is_of_table(value: dict[str, Any]) -> bool:
    """Whether an export's item is about a table: what it asks for stands in its job's params."""
    return "resource" in value
