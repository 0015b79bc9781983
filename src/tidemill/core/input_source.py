"""The source of a job's inputs: its reference, its records in blocks, and the protocols of readers and observers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, Protocol, Self, TypedDict

from tidemill.core.file_format import FileLayout
from tidemill.core.json_input import JsonObject

Checkpoint = Mapping[str, int]  # a position in a source, in the units of its format; empty at the start


class InputDefect(TypedDict):
    """Why a record is not an input: the reason, the line, and the beginning of its text."""

    line: int
    code: str
    reason: str
    value: str
    byte_offset: NotRequired[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReference:
    """What a job reads its inputs from: a stored file, which a worker downloads first if there is a URL."""

    blob: str
    url: str | None = None
    format: str | None = None
    layout: FileLayout | None = None
    name: str | None = None  # the name of the file where it came from
    fixes_of: str | None = None  # the job whose fixed inputs replace those of the file

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """A reference as a job stores it."""
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

    A record that is no input is kept as text, a JSON string, and has a defect: why, under its index in this block.
    ``lines`` are the physical lines of the records; None when all of them follow the plain rule of ``line_of``.
    """

    inputs: list[bytes]  # none: the source is at its end
    checkpoint: Checkpoint  # where the next one begins
    defects: dict[int, InputDefect] = field(default_factory=dict)
    lines: list[int] | None = None


def resolve_line_number(row: int, line: int | None, first_line: int) -> int:
    """The physical line of a record: the one that was noted, or the one that its number says."""
    return row + first_line - 1 if line is None else line


class InputSource(Protocol):
    """Records from a checkpoint on. Reading from the same checkpoint gives the same records."""

    @property
    def columns(self) -> list[str] | None:
        """Their names in the file's own order; None where records name their own."""

    @property
    def first_line(self) -> int:
        """Of the first record."""

    @property
    def layout(self) -> FileLayout:
        """The layout that the file is read with; without options where the source has no file."""

    def read(self, rows: int, size: int) -> InputBlock:
        """So many rows and about so many bytes at most, but one record at least; none at the end."""

    def close(self) -> None: ...


class InputSourceOpener(Protocol):
    """Blocks, for long if the source must be fetched first; Interrupted soon after ``going_on`` says no."""

    def __call__(
        self, reference: SourceReference, checkpoint: Checkpoint, should_continue: Callable[[], bool] = ...
    ) -> InputSource: ...


class InputObserver(Protocol):
    """Sees the inputs of a job while they are read, in order and from the first one on.

    ``params`` are those of the job, completed with what the open source has shown. ``rows_wait_for_end`` says that no
    row may start before the source is read to its end.
    """

    params: JsonObject
    rows_wait_for_end: bool

    def observe(self, lo: int, inputs: Sequence[bytes]) -> list[tuple[int, int, int]]:
        """The next inputs, the first of which has this seq: who loses to whom, and in which key (seq, other, place)."""

    def close(self) -> None: ...
