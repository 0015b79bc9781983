"""How a request asks whether it may be made now: the seam to whoever limits requests."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol


class Permits(Protocol):
    """Permits of named limiters, one for each HTTP request.

    Waited for on the way in, given back on the way out. A ``Refused`` that passes through tells the limiter that nobody
    should ask before then.
    """

    def permit(self, name: str, key: str = "") -> AbstractAsyncContextManager[Any]: ...


class NoLimit:
    """Every request may be made at once; the controller of the kind sees refusals by itself, from the outcomes."""

    def permit(self, name: str, key: str = "") -> AbstractAsyncContextManager[Any]:  # noqa: ARG002  nobody is held back
        return nullcontext()
