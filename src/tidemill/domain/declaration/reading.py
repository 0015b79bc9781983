"""Reading a document of tables: every mistake is told, with the path to it."""

from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.domain.declaration.suggest import did_you_mean
from tidemill.domain.declaration.values import Reader

SECTIONS = ["resources", "datasets", "limiters", "services", "watches"]  # of a tidemill.toml


class Reading:
    """What is wrong is kept, and everything else is read all the same."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def listed(self, path: str, given: Any, readers: dict[str, Reader]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Those of a list of tables that say all there is to say."""
        if not isinstance(given, list | tuple):
            self.wrong(path, f"a list of tables is wanted: [[{path}]]")
            return
        for number, inner in enumerate(given):
            place = f"{path}[{number}]"
            if not isinstance(inner, Mapping):
                self.wrong(place, "a table is wanted")
                continue
            said = self.read(place, inner, readers)
            for missing in readers.keys() - inner.keys():
                self.wrong(f"{place}.{missing}", "it is missing")
            if said.keys() == readers.keys():
                yield place, said

    def tables(self, path: str, given: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if not isinstance(given, Mapping):
            self.wrong(path, "a table of tables is wanted")
            return
        for name, inner in given.items():
            if isinstance(inner, Mapping):
                yield name, inner
            else:
                self.wrong(f"{path}.{name}", f"a table is wanted: [{path}.{name}]")

    def read(
        self, path: str, given: Mapping[str, Any], readers: dict[str, Reader], others: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        self.refuse_unknown(path, given, [*readers, *others])
        found = {}
        for key, value in given.items():
            if key in readers:
                try:
                    found[key] = readers[key](value)
                except ValueError as error:
                    self.wrong(f"{path}.{key}", str(error))
        return found

    def refuse_unknown(self, path: str, given: Mapping[str, Any], known: list[str]) -> None:
        for key in given:
            if key not in known:
                self.wrong(f"{path}.{key}".removeprefix("."), f"unknown key{did_you_mean(key, known)}")

    def wrong(self, path: str, said: str) -> None:
        self.problems.append(f"{path}: {said}")
