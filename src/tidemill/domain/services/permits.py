"""How a request asks whether it may be made now: the seam to whoever limits requests."""

from contextlib import nullcontext
from types import TracebackType
from typing import Any, Protocol


class CallPermit(Protocol):
    """Waited for on the way in, given back on the way out.

    A ``Refused`` that passes through tells the limiter that nobody should ask before then.
    """

    async def __aenter__(self) -> Any: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Any: ...


class Permits(Protocol):
    """Permits of named limiters, one for each HTTP request; InvalidInput if there is no such limiter."""

    def permit(self, name: str, key: str, /) -> CallPermit: ...


class NoLimit:
    """Every request may be made at once; the controller of the kind sees refusals by itself, from the outcomes."""

    def permit(self, _name: str, _key: str, /) -> CallPermit:
        return nullcontext()
