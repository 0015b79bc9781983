"""The license of every runtime dependency permits its use by a program under Apache-2.0."""

import re
from importlib.metadata import files, metadata

import pytest
from packaging.utils import canonicalize_name

from docs.test_requirements_lock import pins, wanted

RUNTIME_EXTRAS = frozenset({"parquet", "brokers", "sftp"})
ALLOWED = frozenset(
    {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "PSF-2.0", "Zlib"}
)
SPDX_BY_OLD_NAME = {
    "apache 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "mit license": "MIT",
}
LGPL_REASON = "LGPL-3.0 permits use as a separate, unmodified library, which a user can replace"
EXCEPTIONS = {
    "asyncssh": (
        "EPL-2.0 OR GPL-2.0-or-later",
        "EPL-2.0 permits use as a separate, unmodified library; optional extra",
    ),
    "psycopg": ("LGPL-3.0-only", LGPL_REASON),
    "psycopg-binary": ("LGPL-3.0-only", LGPL_REASON),
    "psycopg-pool": ("LGPL-3.0-only", LGPL_REASON),
    "taskiq-dependencies": ("", "the metadata has no license field; the distribution contains the text of MIT"),
}


def list_runtime_dependencies() -> set[str]:
    """Return Tidemill's dependencies with the extras of users, and the dependencies of these, on this machine."""
    found: set[str] = set()
    pending = [("tidemill", RUNTIME_EXTRAS)]
    seen = set(pending)
    while pending:
        for one in wanted(*pending.pop()):
            name = canonicalize_name(one.name)
            found.add(name)
            if (name, frozenset(one.extras)) not in seen:
                seen.add((name, frozenset(one.extras)))
                pending.append((name, frozenset(one.extras)))
    return found


def read_license(package: str) -> str:
    """Return the license as an SPDX expression: from the field, the older field, or the classifiers."""
    about = metadata(package)
    if expression := next(iter(about.get_all("License-Expression") or ()), ""):
        return expression
    text = next(iter(about.get_all("License") or ()), "").strip()
    if text and len(text.splitlines()) == 1:
        return SPDX_BY_OLD_NAME.get(text.lower(), text)
    names = [name for name in about.get_all("Classifier") or () if name.startswith("License :: OSI Approved ::")]
    return " AND ".join(SPDX_BY_OLD_NAME.get(name.rpartition(" :: ")[2].lower(), name) for name in names)


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression without parentheses allows use: AND binds stronger than OR."""
    choices = [choice.split(" AND ") for choice in expression.split(" OR ")]
    return any(all(name.strip() in ALLOWED for name in names) for names in choices)


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 AND MIT", True),
        ("Apache-2.0 AND GPL-3.0-only", False),
        ("GPL-2.0-only OR MIT", True),
        ("", False),
    ],
)
def test_license_expression_is_allowed_if_one_choice_is(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) == allowed


def test_license_of_every_locked_runtime_dependency_is_allowed_or_an_exception() -> None:
    packages, locked = list_runtime_dependencies(), pins()
    assert {"psycopg", "fastapi", "starlette", "pyarrow", "redis", "cryptography"} <= packages
    assert packages <= locked.keys()
    licenses = {package: read_license(package) for package in packages}
    refused = {package: text for package, text in licenses.items() if not is_allowed(text)}
    assert refused == {package: text for package, (text, _) in EXCEPTIONS.items()}


def test_license_text_of_dependency_without_license_field_is_mit() -> None:
    (path,) = [file for file in files("taskiq-dependencies") or () if re.fullmatch(r"LICENSE(\.\w+)?", file.name)]
    assert path.read_text().startswith("MIT License")
