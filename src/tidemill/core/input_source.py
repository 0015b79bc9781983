"""The input source of a job: its reference, its records in blocks, and the protocols of readers and observers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, Protocol, Self, TypedDict

from tidemill.core.file_format import FileLayout
from tidemill.core.json_input import JsonObject

Checkpoint = Mapping[str, int]  # a position in a source, in the units of its format; empty at the start


class InputDefect(TypedDict):
    """Why a record is not a valid input: the reason, the line, and the beginning of its text."""

    line: int
    code: str
    reason: str
    value: str
    byte_offset: NotRequired[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReference:
    """The stored file that a job reads its inputs from. If it has a URL, a worker downloads it first."""

    blob: str
    url: str | None = None
    format: str | None = None
    layout: FileLayout | None = None
    name: str | None = None  # the original name of the file
    fixes_of: str | None = None  # the job whose fixed inputs replace those of the file

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse a reference as a job stores it."""
        layout = value.get("layout")
        return cls(
            blob=str(value.get("blob", "")),
            url=value.get("url"),
            format=value.get("format"),
            layout=None if layout is None else FileLayout.from_json(layout),
            name=value.get("name"),
            fixes_of=value.get("fixes_of"),
        )

    def to_json(self) -> dict[str, object]:
        names = ("blob", "url", "format", "name", "fixes_of")
        stored: dict[str, object] = {name: value for name in names if (value := getattr(self, name)) is not None}
        return stored if self.layout is None else stored | {"layout": self.layout.to_json()}


@dataclass(frozen=True, slots=True)
class InputBlock:
    """The next records of a source, encoded as JSON, in order.

    A record that is not a valid input is kept as a JSON string, and ``defects`` has the reason under its index in this
    block. ``lines`` are the physical lines of the records; None if ``resolve_line_number`` can compute all of them.
    """

    inputs: list[bytes]  # empty at the end of the source
    checkpoint: Checkpoint  # where the next block begins
    defects: dict[int, InputDefect] = field(default_factory=dict)
    lines: list[int] | None = None


def resolve_line_number(row: int, line: int | None, first_line: int) -> int:
    """Return the physical line of a record: ``line`` if it is known, else computed from the row number."""
    return row + first_line - 1 if line is None else line


class InputSource(Protocol):
    """Reads records from a checkpoint. Reading from the same checkpoint returns the same records."""

    @property
    def columns(self) -> list[str] | None:
        """The column names in file order; None if each record has its own names."""

    @property
    def first_line(self) -> int:
        """The physical line of the first record."""

    @property
    def layout(self) -> FileLayout:
        """The layout that the file is read with; it has no options if the source is not a file."""

    def read(self, rows: int, size: int) -> InputBlock:
        """Return at most ``rows`` records and about ``size`` bytes, but at least one record; no record at the end."""

    def read_sample(self) -> list[bytes]:
        """Return records of the whole source, or of its beginning if the format has no other access to its records.

        Their number and size are bounded. The next ``read`` is not affected.
        """

    def close(self) -> None: ...


class SourceFetchProgress(Protocol):
    """Observes a download, and ends it."""

    def should_continue(self) -> bool: ...

    def report(self, fetched_bytes: int, total_bytes: int | None) -> None: ...


class SourceDownloader(Protocol):
    """Downloads the source of a job. Blocks, for long if the server is slow.

    Returns the size of the file, and whether this call downloaded it; otherwise it was stored before. Raises
    Interrupted soon after ``should_continue`` returns False.
    """

    def __call__(self, reference: SourceReference, progress: SourceFetchProgress) -> tuple[int, bool]: ...


class InputSourceOpener(Protocol):
    """Opens an input source that is stored.

    If ``should_continue`` returns False while the file is opened or read, that call raises Interrupted, unless the
    file is read in this process.
    """

    def __call__(
        self, reference: SourceReference, checkpoint: Checkpoint, should_continue: Callable[[], bool] = ...
    ) -> InputSource: ...


class InputObserver(Protocol):
    """Sees the inputs of a job while they are read, in order, starting with the first.

    ``params`` are the job's parameters, completed from the open source. If ``rows_wait_for_end`` is set, no row may
    start before the whole source is read.
    """

    params: JsonObject
    rows_wait_for_end: bool

    def add_inputs_and_find_duplicates(self, lo: int, inputs: Sequence[bytes]) -> list[tuple[int, int, int]]:
        """Take the next inputs, starting at seq ``lo``; return duplicates as (seq, seq that wins, index of the key)."""

    def close(self) -> None: ...
