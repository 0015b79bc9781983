"""What every encoder is."""

from typing import Protocol


class Encoder(Protocol):
    """Blocking. It is fed with what ``form.feed`` says, cut anywhere; closed, the output has the whole file.

    ``cut_cells`` counts what the format has no room for. What is ``spreadsheet_safe`` comes so with the rows. One that
    is not closed writes nothing more.
    """

    @property
    def cut_cells(self) -> int: ...

    def write(self, chunk: bytes, /) -> None: ...
    def close(self) -> None: ...
