"""The files that browsers are given: read once, named by what is in them, kept in memory."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
SMALL = 400  # bytes that are not worth packing
FIRST = ("core/", "ui/")  # what every screen needs: fetched at once, not one import after the other
CSS = ("css/tokens.css", "css/base.css", "css/components.css")
SHELL = "index.html"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    plain: bytes
    packed: bytes | None
    media_type: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.plain).hexdigest()[:20]}"'


@dataclass(frozen=True, slots=True)
class Assets:
    """All of them. ``version`` changes with any of them, and is part of every address."""

    version: str
    files: dict[str, Asset]

    def shell(self, depth: int) -> bytes:
        """The page, for an address so many steps below the first: it refers to its parts from there.

        Whatever stands before our addresses, a proxy's prefix for one, need not be known.
        """
        up = "../" * depth or "./"
        root = f"{up}static/{self.version}/"
        css = [f'<link rel="stylesheet" href="{root}{name}">' for name in self._styles()]
        modules = [f'<link rel="modulepreload" href="{root}{name}">' for name in sorted(self.files) if _is_first(name)]
        page = self.files[SHELL].plain.decode()
        return page.replace("{root}", root).replace("{styles}", "\n".join(css + modules)).encode()

    def _styles(self) -> list[str]:
        """Ours in their order, then those of single screens."""
        return [*CSS, *sorted(name for name in self.files if name.endswith(".css") and name not in CSS)]


def _is_first(name: str) -> bool:
    return name.startswith(FIRST) and name.endswith(".js")


@cache
def load() -> Assets:
    found = {name: part.read_bytes() for name, part in _walk(resources.files("tidemill.web") / "static")}
    digest = hashlib.sha256()
    for name, content in sorted(found.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return Assets(digest.hexdigest()[:12], {name: _asset(name, content) for name, content in found.items()})


def _asset(name: str, content: bytes) -> Asset:
    packed = gzip.compress(content, 6, mtime=0) if len(content) > SMALL else None
    return Asset(content, packed, TYPES[name.rpartition(".")[2]])


def _walk(folder: Traversable, before: str = "") -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for part in folder.iterdir():
        name = before + part.name
        if part.is_dir():
            found += _walk(part, f"{name}/")
        elif name.rpartition(".")[2] in TYPES:
            found.append((name, part))
    return found
