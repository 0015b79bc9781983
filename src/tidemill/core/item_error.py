"""The error of an item, as it is stored and shown."""

from typing import TypedDict


class ItemError(TypedDict, total=False):
    """Why an item did not succeed. A handler may add fields of its own, such as the ones that ``Fail`` takes."""

    code: str
    reason: str
    retryable: bool
    field: str | None
    value: str | None
    line: int
    byte_offset: int
    attempt: int
    throttles: int
    misses: int
    row: int
    errors: list["ItemError"]  # of an imported row with several errors: all of them
