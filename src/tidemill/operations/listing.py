"""What is at a source, as far as its watch wants it."""

from dataclasses import dataclass, replace

from tidemill.connectors.inlets import Inlet
from tidemill.domain.watching import Entry, LinksAddress, Watch
from tidemill.domain.watching.names import name_problem, shown

FILES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Listing:
    """Files that are wanted, and those that cannot be taken; with a marker, the paths that have theirs."""

    entries: list[Entry]
    marked: list[str] | None
    is_whole: bool
    trouble: str | None = None

    @property
    def wanted(self) -> int:
        return sum(one.refused is None for one in self.entries)

    @property
    def problem(self) -> str | None:
        if self.trouble is not None or self.is_whole:
            return self.trouble
        return f"there are more than {FILES_MAX:,} files: only so many are looked at"


def listing_of(watch: Watch, inlet: Inlet) -> Listing:
    """Blocking: for threads."""
    entries: list[Entry] = []
    markers: dict[str, Entry] = {}
    for entry in inlet.list(deep=watch.pattern.is_deep, skip=frozenset({watch.processed, watch.failed})):
        if watch.marker is not None and entry.path.endswith(watch.marker):
            markers[entry.path.removesuffix(watch.marker)] = entry
        elif _is_wanted(watch, entry.path):
            entries.append(_plain(entry))
        if len(entries) >= FILES_MAX:
            return Listing(entries, _marked(watch, entries, markers), is_whole=False)
    trouble = inlet.troubles[0] if inlet.troubles else None
    return Listing(entries, _marked(watch, entries, markers), is_whole=trouble is None, trouble=trouble)


def _is_wanted(watch: Watch, path: str) -> bool:
    if isinstance(watch.source, LinksAddress):  # the last part of a URL is its name; a list has no folders
        return watch.pattern.matches_name(path.partition("#")[0]) or not watch.source.is_index
    return watch.is_wanted(path)


def _plain(entry: Entry) -> Entry:
    problem = name_problem(entry.path)
    return entry if problem is None else replace(entry, path=shown(entry.path), refused=problem)


def _marked(watch: Watch, entries: list[Entry], markers: dict[str, Entry]) -> list[str] | None:
    """A marker that is older than its file was another's: of the version before, which was put away without it."""
    if watch.marker is None:
        return None
    return [one.path for one in entries if one.path in markers and not markers[one.path].is_older(one)]
