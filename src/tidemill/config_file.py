"""Reads ``tidemill.toml``, the file that declares resources, limiters, and what the features add to them."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from tidemill.core.errors import InvalidSettings
from tidemill.core.suggest import suggest_similar
from tidemill.features import Feature

DEFAULT_CONFIG_PATH = Path("tidemill.toml")
CORE_SECTIONS = ("resources", "limiters")
T = TypeVar("T")


@lru_cache(maxsize=4)
def _read_document(path: Path, modified_ns: int, size: int) -> dict[str, Any]:  # noqa: ARG001  they identify a version
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


def check_section_names(document: Mapping[str, Any], enabled: Sequence[Feature], disabled: Iterable[Feature]) -> None:
    """InvalidSettings with every section that neither the core nor an enabled feature has."""
    known = [*CORE_SECTIONS, *(section for feature in enabled for section in feature.config_sections)]
    disabled_features = {section: feature.name for feature in disabled for section in feature.config_sections}
    problems = []
    for section in document:
        if section in disabled_features:
            problems.append(f'{section}: The feature "{disabled_features[section]}" is disabled. Remove the section.')
        elif section not in known:
            problems.append(f"{section}: Unknown section{suggest_similar(section, known)}")
    if problems:
        raise InvalidSettings("\n  - ".join(["Invalid sections:", *problems]))
