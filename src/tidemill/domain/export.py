"""What an export is asked for: a job's rows as a file. Of tables, see ``exporting``."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from tidemill.domain import form
from tidemill.domain.errors import InvalidInput
from tidemill.domain.handler import OWN_KINDS
from tidemill.domain.numbers import Range, is_in, merged
from tidemill.domain.status import ItemStatus, parse_item_status

KIND = f"{OWN_KINDS}export"


class Format(StrEnum):
    CSV = "csv"
    XLSX = "xlsx"
    NDJSON = "ndjson"


CONTENT_TYPES = {format_: form.CONTENT_TYPES[form.FileFormat(format_)] for format_ in Format}


@dataclass(frozen=True, slots=True)
class Rows:
    """Which of a job's rows, beside their statuses: by cause, by key, or those that are named; but some."""

    codes: frozenset[str] | None = None
    key: str | None = None
    seqs: frozenset[int] | None = None
    but: frozenset[int] = frozenset()
    ranges: tuple[Range, ...] = ()  # beside the seqs; in order, and apart from one another

    @classmethod
    def parse(cls, words: dict[str, Any]) -> Self:
        codes, seqs = words.get("codes"), words.get("seqs")
        return cls(
            None if codes is None else frozenset(codes),
            words.get("key"),
            None if seqs is None else frozenset(seqs),
            frozenset(words.get("but", ())),
            merged(words.get("ranges", ())),
        )

    def words(self) -> dict[str, Any]:
        """The same as JSON; empty when all rows are meant."""
        codes = {} if self.codes is None else {"codes": sorted(self.codes)}
        key = {} if self.key is None else {"key": self.key}
        seqs = {} if self.seqs is None else {"seqs": sorted(self.seqs)}
        ranges = {"ranges": [list(one) for one in self.ranges]} if self.ranges else {}
        return codes | key | seqs | ranges | ({"but": sorted(self.but)} if self.but else {})

    def has(self, seq: int) -> bool:
        return seq not in self.but and (self.seqs is None or seq in self.seqs or is_in(seq, self.ranges))


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """Which rows of which job, as what. ``spreadsheet_safe`` keeps text from being read as a formula."""

    job_id: UUID
    format: Format
    statuses: tuple[ItemStatus, ...] = ()
    spreadsheet_safe: bool = False
    rows: Rows = field(default_factory=Rows)

    @classmethod
    def of(
        cls,
        job_id: UUID,
        format_: str,
        statuses: Iterable[str] = (),
        *,
        spreadsheet_safe: bool = False,
        rows: Rows | None = None,
    ) -> Self:
        """Statuses in any order and case; none of them means all."""
        if format_ not in Format.__members__.values():
            raise InvalidInput(f"there is no format {format_!r}; known are {', '.join(Format)}")
        try:
            wanted = {parse_item_status(word) for word in statuses}
        except ValueError as error:
            raise InvalidInput(str(error)) from error
        return cls(job_id, Format(format_), tuple(sorted(wanted)), spreadsheet_safe, rows or Rows())

    @classmethod
    def parse(cls, value: dict[str, Any]) -> Self:
        """From an item's input."""
        safe, rows = value["spreadsheet_safe"], Rows.parse(value.get("rows", {}))
        return cls.of(UUID(value["job_id"]), value["format"], value["statuses"], spreadsheet_safe=safe, rows=rows)

    def input(self) -> dict[str, Any]:
        """As an item's input."""
        request: dict[str, Any] = {"job_id": str(self.job_id), "format": self.format}
        request |= {"statuses": list(self.statuses), "spreadsheet_safe": self.spreadsheet_safe}
        return request | ({"rows": self.rows.words()} if self.rows.words() else {})

    def file_name(self, job_key: str) -> str:
        chosen = ("selected",) if self.rows.words() else ()
        return "-".join((job_key, *self.statuses, *chosen)) + f".{self.format}"


def is_of_table(value: dict[str, Any]) -> bool:
    """Whether an export's item is about a table: what it asks for stands in its job's params."""
    return "resource" in value
