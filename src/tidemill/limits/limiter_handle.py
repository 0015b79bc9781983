"""Where handlers ask for permits by themselves: for several calls of an item, or of another limiter."""

from typing import Any, Protocol, Self

from tidemill.core.errors import InvalidInput


class Permit(Protocol):
    """Leave to begin one call: waited for on the way in, given back on the way out.

    A refusal (429, 503) that passes through is told to the limiter, and to no other. ``Wait`` is raised when the
    limiter is blocked for longer than anybody would wait here: the item goes back and comes again then, uncharged.
    """

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...


class PermitProvider(Protocol):
    """The limiters of the installation, as one process asks them.

    A handler that makes one call per item names its limiter (``limit=``, and ``limit_by=`` a function of the item for a
    member per domain): then its items begin when there is a permit, and it need not ask. A batch handler has one permit
    per batch. One that makes several calls, or calls others beside, asks for each of them:
    ``async with limits.permit("shop")``. A mill's ``registry.desk.limit`` is the same, before there is a worker.
    """

    def permit(self, name: str, key: str = "") -> Permit: ...


class LimiterHandle:
    """Of a mill: it is declared before there is a worker, and asked inside one."""

    def __init__(self) -> None:
        self._limits: PermitProvider | None = None

    def bind(self, limits: PermitProvider) -> None:
        """From here on this process is a worker."""
        self._limits = limits

    def defer_permit(self, name: str, key: str = "") -> "DeferredPermit":
        return DeferredPermit(self, name, key)

    def permit(self, name: str, key: str) -> Permit:
        if self._limits is None:
            raise InvalidInput(f"limiter {name!r} was asked outside of a worker: only handlers that run can ask")
        return self._limits.permit(name, key)


class DeferredPermit:
    """``async with`` in an async handler, ``with`` in one that runs in a thread."""

    def __init__(self, handle: LimiterHandle, name: str, key: str) -> None:
        self._handle, self._name, self._key = handle, name, key
        self._permit: Permit | None = None

    async def __aenter__(self) -> Self:
        self._permit = permit = self._handle.permit(self._name, self._key)
        await permit.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._permit is not None:
            await self._permit.__aexit__(kind, error, trace)

    def __enter__(self) -> Self:
        self._permit = permit = self._handle.permit(self._name, self._key)
        permit.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._permit is not None:
            self._permit.__exit__(kind, error, trace)
