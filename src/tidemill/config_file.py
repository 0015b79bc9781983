"""Reads ``tidemill.toml``, the file that declares resources, datasets, limiters, services and watches."""

import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from tidemill.core.errors import InvalidSettings

DEFAULT_CONFIG_PATH = Path("tidemill.toml")
T = TypeVar("T")


@lru_cache(maxsize=4)
def _read_document(path: Path, modified_ns: int, size: int) -> dict[str, Any]:  # noqa: ARG001  they tell versions apart
    """A file is read once, however many sections of it are loaded."""
    return tomllib.loads(path.read_text("utf-8"))


def load_section(path: Path | None, parse: Callable[[dict[str, Any]], dict[str, T]]) -> dict[str, T]:
    """What ``parse`` returns for this file, by default ``tidemill.toml`` here if it exists; else InvalidSettings."""
    if path is None:
        if not DEFAULT_CONFIG_PATH.is_file():
            return {}
        path = DEFAULT_CONFIG_PATH
    try:
        stat = path.stat()
        return parse(_read_document(path.absolute(), stat.st_mtime_ns, stat.st_size))
    except OSError as error:
        raise InvalidSettings(f"TIDEMILL_CONFIG: cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path} is not TOML: {error}") from error
    except InvalidSettings as error:
        raise InvalidSettings(f"{path}: {error}") from None
