"""The file that declares resources, datasets, limiters, services and watches, read at an entrance."""

import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from tidemill.domain.declaration import Declaration, declarations
from tidemill.domain.distribution import Dataset, datasets
from tidemill.domain.errors import InvalidSettings
from tidemill.domain.limits import Limiter, limiters
from tidemill.domain.resource import NORMALIZERS
from tidemill.domain.services import Service, services
from tidemill.domain.watching import Watch, watches

FILE = Path("tidemill.toml")
T = TypeVar("T")


def load(path: Path | None = None, normalizers: Collection[str] = NORMALIZERS) -> dict[str, Declaration]:
    """The resources of this file, or of ``tidemill.toml`` here if there is one; InvalidSettings with every mistake."""
    return _read(path, lambda document: declarations(document, normalizers))


def load_datasets(path: Path | None = None) -> dict[str, Dataset]:
    """The datasets of it, likewise."""
    return _read(path, datasets)


def load_services(path: Path | None = None) -> dict[str, Service]:
    """The services of it, likewise."""
    return _read(path, services)


def load_watches(path: Path | None = None) -> dict[str, Watch]:
    """The watches of it, likewise."""
    return _read(path, watches)


def load_limiters(path: Path | None = None) -> dict[str, Limiter]:
    """The limiters of it, likewise."""
    return _read(path, limiters)


def _read(path: Path | None, read: Callable[[dict[str, Any]], dict[str, T]]) -> dict[str, T]:
    if path is None:
        if not FILE.is_file():
            return {}
        path = FILE
    try:
        return read(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise InvalidSettings(f"TIDEMILL_CONFIG: cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path} is not TOML: {error}") from error
    except InvalidSettings as error:
        raise InvalidSettings(f"{path}: {error}") from None
