"""Finds and parses the configuration file ``tidemill.toml``."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings, format_suggestion
from tidemill.features import Feature

DEFAULT_CONFIG_PATH = Path("tidemill.toml")
CORE_SECTIONS = ("resources", "limiters", "kinds")
APP_KEY = "app"  # a key of the file, beside its sections
T = TypeVar("T")


@lru_cache(maxsize=4)
def _load_toml_file(path: Path, modified_ns: int, size: int) -> dict[str, Any]:  # noqa: ARG001  they are part of the cache key
    """Parse a TOML file. The cache avoids parsing it once per section."""
    return tomllib.loads(path.read_text("utf-8"))


def find_config_path(configured: Path | None) -> Path | None:
    """Return the configuration file, by default ``tidemill.toml`` in the working directory; None if there is none."""
    if configured is None and DEFAULT_CONFIG_PATH.is_file():
        return DEFAULT_CONFIG_PATH
    return configured


def load_config_file(path: Path | None, parse: Callable[[dict[str, Any]], dict[str, T]]) -> dict[str, T]:
    """Parse a file, by default ``tidemill.toml`` in the working directory if it exists.

    Raises:
        InvalidSettings: The file cannot be read, is not valid TOML, or ``parse`` rejects it.
    """
    path = find_config_path(path)
    if path is None:
        return {}
    try:
        stat = path.stat()
        return parse(_load_toml_file(path.absolute(), stat.st_mtime_ns, stat.st_size))
    except OSError as error:
        raise InvalidSettings(f'TIDEMILL_CONFIG: cannot read "{path}": {error.strerror}') from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSettings(f"{path} is not valid TOML: {error}") from error
    except InvalidSettings as error:
        raise InvalidSettings(f"{path}: {error}") from None


def find_configured_app_and_source(settings: Settings) -> tuple[str, str] | None:
    """Return the mill of ``TIDEMILL_APP`` or of ``app`` in the configuration file, and the source of this value.

    Raises:
        InvalidSettings: The file is invalid, or its ``app`` is not a text.
    """
    if settings.app is not None:
        return settings.app, "TIDEMILL_APP"
    found = load_config_file(settings.config, _parse_app_key)
    return (found[APP_KEY], f'{find_config_path(settings.config)}, key "{APP_KEY}"') if found else None


def _parse_app_key(document: dict[str, Any]) -> dict[str, str]:
    value = document.get(APP_KEY)
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidSettings(f'{APP_KEY}: Input should be MODULE:NAME of a mill, such as "app:mill"')
    return {} if value is None else {APP_KEY: value}


def check_section_names(document: Mapping[str, Any], enabled: Sequence[Feature], disabled: Iterable[Feature]) -> None:
    """Raise InvalidSettings with all sections that belong neither to the core nor to an enabled feature."""
    known = [APP_KEY, *CORE_SECTIONS, *(section for feature in enabled for section in feature.config_sections)]
    disabled_features = {section: feature.name for feature in disabled for section in feature.config_sections}
    problems = []
    for section in document:
        if section in disabled_features:
            problems.append(f'{section}: The feature "{disabled_features[section]}" is disabled. Remove the section.')
        elif section not in known:
            problems.append(f"{section}: Unknown section{format_suggestion(section, known)}")
    if problems:
        raise InvalidSettings("\n  - ".join(["Invalid sections:", *problems]))
