"""The request for a file with the results of a job. For tables, see ``table_export``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, Self, TypedDict
from uuid import UUID

from tidemill.core import file_format
from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import ResultFileFormat
from tidemill.core.row_ranges import RowSelection
from tidemill.core.status import ItemStatus, parse_item_status

RESULT_CONTENT_TYPES = {
    format_: file_format.FORMAT_CONTENT_TYPES[file_format.FileFormat(format_)] for format_ in ResultFileFormat
}


@dataclass(frozen=True, slots=True)
class ResultExportRequest:
    """The rows of a job to export, and the format. ``spreadsheet_safe`` keeps text from being read as a formula."""

    job_id: UUID
    format: ResultFileFormat
    statuses: tuple[ItemStatus, ...] = ()
    spreadsheet_safe: bool = False
    rows: RowSelection = field(default_factory=RowSelection)

    @classmethod
    def create(
        cls,
        job_id: UUID,
        format_: str,
        statuses: Iterable[str] = (),
        *,
        spreadsheet_safe: bool = False,
        rows: RowSelection | None = None,
    ) -> Self:
        """A checked request. Statuses may have any order and case; none means all."""
        if format_ not in ResultFileFormat.__members__.values():
            raise InvalidInput(f"there is no format {format_!r}; known are {', '.join(ResultFileFormat)}")
        try:
            parsed_statuses = {parse_item_status(name) for name in statuses}
        except ValueError as error:
            raise InvalidInput(str(error)) from error
        return cls(
            job_id, ResultFileFormat(format_), tuple(sorted(parsed_statuses)), spreadsheet_safe, rows or RowSelection()
        )

    @classmethod
    def from_input(cls, value: Mapping[str, Any]) -> Self:
        """From the input of an export's item."""
        safe, rows = value["spreadsheet_safe"], RowSelection.from_json(value.get("rows", {}))
        return cls.create(UUID(value["job_id"]), value["format"], value["statuses"], spreadsheet_safe=safe, rows=rows)

    def to_input(self) -> dict[str, object]:
        """The input of an export's item."""
        request: dict[str, object] = {"job_id": str(self.job_id), "format": self.format}
        request |= {"statuses": list(self.statuses), "spreadsheet_safe": self.spreadsheet_safe}
        return request | ({"rows": self.rows.to_json()} if self.rows.to_json() else {})

    def build_file_name(self, job_key: str) -> str:
        chosen = ("selected",) if self.rows.to_json() else ()
        return "-".join((job_key, *self.statuses, *chosen)) + f".{self.format}"


class ExportedFile(TypedDict):
    """The result of an export: its file."""

    name: str
    format: str
    rows: int
    cut_cells: int
    size: int
    sha256: str
    file_id: str
    spreadsheet_safe: bool
    expires_at: str
    compression: NotRequired[str]  # of a table


def is_table_export(value: Mapping[str, Any]) -> bool:
    """Whether the input of an export's item is that of a table export; its request is in the job's params."""
    return "resource" in value
