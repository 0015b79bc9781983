"""The file that declares resources, read once, at an entrance."""

import tomllib
from collections.abc import Collection
from pathlib import Path

from tidemill.domain.declaration import Declaration, declarations
from tidemill.domain.errors import InvalidSettings
from tidemill.domain.resource import NORMALIZERS

FILE = Path("tidemill.toml")


def load(path: Path | None = None, normalizers: Collection[str] = NORMALIZERS) -> dict[str, Declaration]:
    """The resources of this file, or of ``tidemill.toml`` here if there is one; InvalidSettings with every mistake."""
    if path is None:
        if not FILE.is_file():
            return {}
        path = FILE
    try:
        return declarations(tomllib.loads(path.read_text("utf-8")), normalizers)
    except OSError as error:
        raise InvalidSettings(f"TIDEMILL_CONFIG: cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path} is not TOML: {error}") from error
    except InvalidSettings as error:
        raise InvalidSettings(f"{path}: {error}") from None
