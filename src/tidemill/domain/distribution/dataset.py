"""A dataset: what an input of it is made of, and who produces the rows of its file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.domain.distribution.fields import InputField
from tidemill.domain.form import Column, Compression, FileFormat, Form
from tidemill.domain.identity import Role

__all__ = ["Dataset", "InputField"]

Producer = Callable[..., Any]
"""A function of an input, as a dict: it returns rows, or yields them, as dicts or tuples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """``query`` or ``producer``: one of them makes the rows. ``date_field`` is the one that reuse looks at."""

    name: str
    fields: tuple[InputField, ...]
    query: str | None = None
    producer: Producer | None = None
    columns: tuple[str, ...] = ()  # of what a function yields, where its rows do not say so
    date_field: str | None = None
    format: FileFormat = FileFormat.CSV
    compression: Compression = Compression.NONE
    read: tuple[Role, ...] = (Role.ADMIN,)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def form(
        self,
        format_: FileFormat | None = None,
        compression: Compression | None = None,
        columns: tuple[Column, ...] = (),
    ) -> Form:
        """As it is declared, or as somebody wants it; InvalidInput if the two do not go together."""
        if compression is None:
            compression = self.compression if format_ in (None, self.format) else Compression.NONE
        return Form(format_ or self.format, columns, compression)

    def is_for(self, role: Role) -> bool:
        return role in self.read or (role is Role.ADMIN and bool(self.read))
