"""The static files of the web UI: read once, cached in memory, versioned by their content."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

MEDIA_TYPE_BY_EXTENSION = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
GZIP_MIN_BYTES = 400  # smaller files are not compressed
PRELOADED_FOLDERS = ("core/", "ui/")  # needed by every screen; preloading avoids one request after the other
BASE_STYLESHEETS = ("css/tokens.css", "css/base.css", "css/components.css")
PAGE_TEMPLATE = "index.html"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, uncompressed and compressed."""

    plain: bytes
    gzipped: bytes | None
    media_type: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.plain).hexdigest()[:20]}"'


@dataclass(frozen=True, slots=True)
class Assets:
    """All files. ``version`` changes when any file changes, and is part of every URL."""

    version: str
    files: dict[str, Asset]

    def render_page(self, depth: int) -> bytes:
        """Return the page for a URL ``depth`` levels below the root. Links are relative: a proxy may add a prefix."""
        up = "../" * depth or "./"
        root = f"{up}static/{self.version}/"
        css = [f'<link rel="stylesheet" href="{root}{name}">' for name in self._list_stylesheets()]
        modules = [
            f'<link rel="modulepreload" href="{root}{name}">' for name in sorted(self.files) if _is_preloaded(name)
        ]
        page = self.files[PAGE_TEMPLATE].plain.decode()
        return page.replace("{root}", root).replace("{styles}", "\n".join(css + modules)).encode()

    def _list_stylesheets(self) -> list[str]:
        """Return the base stylesheets in order, then the stylesheets of single screens."""
        return [
            *BASE_STYLESHEETS,
            *sorted(name for name in self.files if name.endswith(".css") and name not in BASE_STYLESHEETS),
        ]


def _is_preloaded(name: str) -> bool:
    return name.startswith(PRELOADED_FOLDERS) and name.endswith(".js")


@cache
def load_assets() -> Assets:
    contents = {name: part.read_bytes() for name, part in _list_files(resources.files("tidemill.web") / "static")}
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return Assets(digest.hexdigest()[:12], {name: _build_asset(name, content) for name, content in contents.items()})


def _build_asset(name: str, content: bytes) -> Asset:
    compressed = gzip.compress(content, 6, mtime=0) if len(content) > GZIP_MIN_BYTES else None
    return Asset(content, compressed, MEDIA_TYPE_BY_EXTENSION[name.rpartition(".")[2]])


def _list_files(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    files: list[tuple[str, Traversable]] = []
    for part in folder.iterdir():
        name = prefix + part.name
        if part.is_dir():
            files += _list_files(part, f"{name}/")
        elif name.rpartition(".")[2] in MEDIA_TYPE_BY_EXTENSION:
            files.append((name, part))
    return files
