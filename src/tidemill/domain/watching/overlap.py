"""Watches that would take the same file twice: under two names of its folder, or of one that lies in another."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import PurePath

from tidemill.domain.place import BucketPlace
from tidemill.domain.watching.address import FolderAddress, HostAddress
from tidemill.domain.watching.watch import Watch


@dataclass(frozen=True, slots=True)
class Place:
    """Where files really are, whatever that is called: a machine or a store, and the folders down to them."""

    store: tuple[object, ...]
    parts: tuple[str, ...]

    def within(self, outer: "Place") -> tuple[str, ...] | None:
        """The folders that lead here from another place; None if it is elsewhere."""
        if self.store != outer.store or self.parts[: len(outer.parts)] != outer.parts:
            return None
        return self.parts[len(outer.parts) :]


def overlaps(watches: Iterable[Watch], folders: Mapping[str, PurePath]) -> Iterator[str]:
    """What is wrong with them, pair by pair. ``folders`` are those of this machine, by watch, without links."""
    placed = [(one, place) for one in watches if (place := _place(one, folders.get(one.name))) is not None]
    for (outer, around), (inner, place) in permutations(placed, 2):
        below = place.within(around)
        if below is not None and (below or outer.name < inner.name or outer.key == inner.key):
            problem = _problem(outer, inner, below)
            if problem is not None:
                yield f"watches.{inner.name}.source: {problem}"


def _place(watch: Watch, folder: PurePath | None) -> Place | None:
    """None of the web: there a file is known by its whole URL."""
    match watch.source:
        case FolderAddress():
            return None if folder is None else Place(("folder",), folder.parts)
        case BucketPlace(scheme, bucket, prefix):
            return Place((scheme, bucket, watch.access.endpoint), _parts(prefix))
        case HostAddress(scheme, host, port, user, path):
            return Place((scheme, host, port, user, path.startswith("/")), _parts(path))
        case _:
            return None


def _parts(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def _problem(outer: Watch, inner: Watch, below: tuple[str, ...]) -> str | None:
    if not below and outer.key != inner.key:
        return f"{inner.source} and {outer.source} are one folder, which {outer.name} watches: call it the same in both"
    if outer.can_move and outer.is_ours("/".join((*below[:1], ""))) and outer.pattern.meets(inner.pattern):
        return f"{outer.name} puts files there that it has taken: they would be taken twice"
    put_away = [(*below, name) for name in (inner.processed, inner.failed) if inner.can_move]
    for folder in [below, *put_away] if below else put_away:
        if not outer.is_ours("/".join((*folder, ""))) and outer.pattern.meets(inner.pattern, "/".join(folder)):
            return (
                f"{outer.name} watches {outer.source} and takes files of {'/'.join(folder)} in it, too: "
                "they would be taken twice; let its pattern leave them out, or watch one of the folders only"
            )
    return None
