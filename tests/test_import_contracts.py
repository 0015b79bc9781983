"""The lists in the import contracts of pyproject.toml are complete."""

import ast
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import tidemill

PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
CONTRACTS = {contract["name"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
PACKAGE = Path(tidemill.__file__).parent
DRIVERS = set(CONTRACTS["Only the store, tables and SQL modules import a database driver"]["forbidden_modules"])
SQL_MODULES = {  # outside tidemill.store and tidemill.tables, only these may import a database driver
    "tidemill.dispatch.outbox",
    "tidemill.dispatch.dispatchers",
    "tidemill.dispatch.quarantine",
    "tidemill.distributions.artifact_producer",
    "tidemill.exports.result_export",
    "tidemill.exports.table_exporter",
    "tidemill.imports.import_records",
    "tidemill.imports.target_table",
    "tidemill.imports.undo_log",
    "tidemill.imports.undo_table",
    "tidemill.limits.limiter_records",
    "tidemill.testing.throwaway_postgres",
    "tidemill.torture.processes",
}


def _imported_packages(path: Path) -> set[str]:
    """The top-level packages that a module imports, also inside its functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def test_only_listed_modules_import_a_database_driver() -> None:
    importers = {_module_name(path) for path in PACKAGE.rglob("*.py") if _imported_packages(path) & DRIVERS}
    elsewhere = {name for name in importers if name.split(".")[1] not in ("store", "tables")}
    assert elsewhere == SQL_MODULES


def test_every_module_with_routes_or_commands_is_in_shell_contract() -> None:
    """FastAPI and Typer mark a shell. Only tidemill.rest, which authenticates requests, is below the use cases."""
    patterns = [
        re.compile(re.escape(pattern).replace(r"\*", r"[^.]+") + r"(\..*)?")
        for pattern in CONTRACTS["Shells call use cases only"]["source_modules"]
    ]
    shells = {_module_name(path) for path in PACKAGE.rglob("*.py") if _imported_packages(path) & {"fastapi", "typer"}}
    listed = {name for name in shells if any(pattern.fullmatch(name) for pattern in patterns)}
    assert {name for name in shells - listed if name.split(".")[1] not in ("rest", "terminal")} == set()


def test_shell_modules_with_longer_names_are_listed_in_contract() -> None:
    """A wildcard of import-linter matches a complete module name only, so ``*_routes`` is not possible."""
    listed = CONTRACTS["Shells call use cases only"]["source_modules"]
    for pattern in ("*_cli.py", "*_routes.py", "*_schemas.py"):
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
