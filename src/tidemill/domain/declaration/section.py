"""One section of a ``tidemill.toml``: tables, each with a name."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from tidemill.domain.declaration.reading import SECTIONS, Reading
from tidemill.domain.errors import InvalidSettings

T = TypeVar("T")


class Section(Reading, Generic[T]):
    """Reads all of one section, and tells everything that is wrong with it together."""

    section: ClassVar[str]
    is_name: ClassVar = re.compile(r"[a-z][a-z0-9_-]{0,62}").fullmatch
    names_are: ClassVar = "lower-case letters, digits, - and _"

    def declared(self, document: Mapping[str, Any]) -> dict[str, T]:
        """By name; InvalidSettings."""
        self.refuse_unknown("", document, SECTIONS)
        found = {
            name: self._one(f"{self.section}.{name}", name, inner)
            for name, inner in self.tables(self.section, document.get(self.section, {}))
        }
        if self.problems:
            lines = "\n".join(f"  - {line}" for line in self.problems)
            raise InvalidSettings(f"these {self.section} cannot be:\n{lines}")
        return {name: one for name, one in found.items() if one is not None}

    @abstractmethod
    def one(self, path: str, name: str, given: Mapping[str, Any]) -> T | None:
        """What a table declares; None, or anything, when something is wrong with it."""

    def _one(self, path: str, name: str, given: Mapping[str, Any]) -> T | None:
        if not self.is_name(name):
            self.wrong(path, f"a name is {self.names_are}, and begins with a letter")
        return self.one(path, name, given)
