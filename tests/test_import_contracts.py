"""The lists in the import contracts of pyproject.toml are complete."""

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import tidemill

PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
CONTRACTS = {contract["name"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
PACKAGE = Path(tidemill.__file__).parent


def test_shell_modules_with_longer_names_are_listed_in_contract() -> None:
    """A wildcard of import-linter stands for a whole name, so ``*_routes`` cannot be written."""
    listed = CONTRACTS["Shells call use cases only"]["source_modules"]
    for pattern in ("*_routes.py", "*_schemas.py"):
        for path in PACKAGE.rglob(pattern):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            assert {".".join(parts), ".".join(parts[:2])} & set(listed), path


def test_core_contract_forbids_every_runtime_dependency() -> None:
    forbidden = set(CONTRACTS["The core uses the standard library only"]["forbidden_modules"])
    owners = {module: {_normalize(name) for name in names} for module, names in packages_distributions().items()}
    for requirement in PROJECT["project"]["dependencies"]:
        distribution = _normalize(re.split(r"[\[<>=;]", requirement)[0].strip())
        modules = {module for module, names in owners.items() if distribution in names}
        assert not modules or modules & forbidden, requirement


def _normalize(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_contracts_have_no_exceptions() -> None:
    assert not [name for name, contract in CONTRACTS.items() if contract.get("ignore_imports")]
