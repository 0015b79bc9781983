"""The lock file: a fresh clone installs its versions, even if newer ones were released."""

import re
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?==(?P<version>[^ ;]+)[^\\]*\\\n    --hash=sha256:", re.MULTILINE
)


def pins() -> dict[str, set[Version]]:
    found: dict[str, set[Version]] = {}
    for pin in PIN.finditer((ROOT / "requirements.lock").read_text()):
        found.setdefault(canonicalize_name(pin["name"]), set()).add(Version(pin["version"]))
    return found


def wanted(package: str, extras: frozenset[str]) -> list[Requirement]:
    """Return the requirements of a package with these extras on this machine."""
    asked = [Requirement(line) for line in requires(package) or ()]
    return [one for one in asked if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras | {""})]


def test_lock_file_pins_compatible_version_of_every_dependency() -> None:
    locked, seen = pins(), set()
    pending = [("tidemill", frozenset({"dev", "build"}))]
    while pending:
        package, extras = pending.pop()
        seen.add((package, extras))
        for one in wanted(package, extras):
            name = canonicalize_name(one.name)
            assert any(one.specifier.contains(v, prereleases=True) for v in locked.get(name, ())), (
                f"{package} needs {one}"
            )
            if (name, frozenset(one.extras)) not in seen:
                pending.append((name, frozenset(one.extras)))
    assert len({package for package, _ in seen}) > 50


@pytest.mark.parametrize("option", ["--no-deps", "--require-hashes"])
def test_make_install_uses_lock_file_without_resolving(option: str) -> None:
    """When pip resolved dependencies, it chose a newer `coverage[toml]`, which has no hash in the lock, and failed."""
    recipe = subprocess.run(
        ["make", "--dry-run", "--always-make", ".venv/.ready"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (install,) = [line for line in recipe.splitlines() if "-r requirements.lock" in line]
    assert option in install.split()
