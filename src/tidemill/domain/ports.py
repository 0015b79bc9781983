"""What the rooms of one floor know of each other: protocols that app.py fills."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tidemill.domain.handler import Handler


class Record(Protocol):
    """One record of a source: its encoded input, or why it has none, and where the next one begins."""

    @property
    def input(self) -> bytes: ...
    @property
    def defect(self) -> dict[str, Any] | None: ...
    @property
    def checkpoint(self) -> dict[str, Any]: ...


class Source(Protocol):
    """Records from a checkpoint on. Reading from the same checkpoint gives the same records."""

    def records(self, checkpoint: dict[str, Any]) -> Iterator[Record]: ...
    def close(self) -> None: ...


class OpenSource(Protocol):
    def __call__(self, reference: dict[str, Any]) -> Source: ...


class Intake(Protocol):
    """Looks at the inputs of a job while they are read, in order and from the first one on."""

    def see(self, lo: int, inputs: Sequence[bytes]) -> list[tuple[int, int, int]]:
        """The next inputs, the first of which has this seq: who loses to whom, and in which key (seq, other, place)."""

    def close(self) -> None: ...


class Handlers(Protocol):
    """The kinds a worker can run."""

    def get(self, kind: str) -> Handler: ...
    def kinds(self) -> list[str]: ...
