"""Where handlers ask for permits by themselves: for several calls of an item, or of another limiter."""

from typing import Self

from tidemill.domain.errors import InvalidInput
from tidemill.domain.ports import Limits, Permit


class LimitDesk:
    """Of a mill: it is declared before there is a worker, and asked inside one."""

    def __init__(self) -> None:
        self._limits: Limits | None = None

    def open(self, limits: Limits) -> None:
        """From here on this process is a worker."""
        self._limits = limits

    def limit(self, name: str, key: str = "") -> "AskedPermit":
        return AskedPermit(self, name, key)

    def permit(self, name: str, key: str) -> Permit:
        if self._limits is None:
            raise InvalidInput(f"limiter {name!r} was asked outside of a worker: only handlers that run can ask")
        return self._limits.permit(name, key)


class AskedPermit:
    """``async with`` in an async handler, ``with`` in one that runs in a thread."""

    def __init__(self, desk: LimitDesk, name: str, key: str) -> None:
        self._desk, self._name, self._key = desk, name, key
        self._permit: Permit | None = None

    async def __aenter__(self) -> Self:
        self._permit = permit = self._desk.permit(self._name, self._key)
        await permit.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._permit is not None:
            await self._permit.__aexit__(kind, error, trace)

    def __enter__(self) -> Self:
        self._permit = permit = self._desk.permit(self._name, self._key)
        permit.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._permit is not None:
            self._permit.__exit__(kind, error, trace)
