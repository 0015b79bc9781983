"""Each built-in feature can be disabled: the process starts, and only the parts of the feature are missing."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tidemill.app.feature_list import DISABLED_FEATURES_VARIABLE, load_features
from tidemill.config import Settings
from tidemill.features import Feature, import_object
from tidemill.runtime import Runtime

FEATURES = {feature.name: feature for feature in load_features()}
SCHEMA_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')
DESCRIBE = """
import json, sys
from tidemill.app.runtime_factory import map_builtin_handler_factories, make_runtime
from tidemill.app.mill_declarations import HandlerRegistry
from tidemill.cli.main import load_command_summaries
from tidemill.config import load_settings
from tidemill.http.application import create_api
from tidemill.store.database import Database

commands = [name for summaries in load_command_summaries().values() for name in summaries]
registry = HandlerRegistry()
runtime = make_runtime(Database("postgresql://nowhere"), load_settings(), registry)
app = create_api(runtime)
kinds = [handler.kind for handler in registry.copy_with_builtins(map_builtin_handler_factories(runtime)).create_all()]
modules = [name for name in sys.modules if name.startswith("tidemill.")]
print(json.dumps({"commands": commands, "document": app.openapi(), "kinds": kinds, "modules": modules}))
"""
START = """
import asyncio
import httpx2
from tidemill.app.runtime_factory import make_runtime
from tidemill.app.mill import Mill
from tidemill.app.worker import make_worker
from tidemill.http.application import create_api
from tidemill.store.open_database import open_database
from tidemill.terminal.command_host import BUILTIN_MILL_REFERENCE

async def main():
    mill = Mill()
    async with open_database(mill.settings, size=4) as db:
        app = create_api(make_runtime(db, mill.settings, mill.registry))
        worker = make_worker(db, mill, BUILTIN_MILL_REFERENCE, 1)
        await worker.start()
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://tidemill") as client:
            print((await client.get("/health")).json()["status"])
        await worker.stop()

asyncio.run(main())
"""


def run_without(feature: str, code: str, **environment: str) -> str:
    """Run code in a new interpreter with the feature disabled and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ) | {DISABLED_FEATURES_VARIABLE: feature} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@cache
def describe_without(feature: str) -> dict[str, Any]:
    description: dict[str, Any] = json.loads(run_without(feature, DESCRIBE))
    return description


def list_paths(feature: Feature) -> set[str]:
    return {f"/v1{route.path}" for name in feature.routers for route in import_object(name).routes}


def find_reachable_schemas(document: dict[str, Any]) -> set[str]:
    """Return the schemas that the paths of a document refer to, directly or indirectly."""
    schemas = document["components"]["schemas"]
    found: set[str] = set()
    new = set(SCHEMA_REFERENCE.findall(json.dumps(document["paths"])))
    while new:
        found |= new
        new = set(SCHEMA_REFERENCE.findall(json.dumps([schemas[name] for name in new]))) - found
    return found


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES)
def test_disabled_feature_removes_only_its_commands_and_kinds(feature: Feature) -> None:
    everything, rest = describe_without(""), describe_without(feature.name)
    assert set(everything["commands"]) - set(rest["commands"]) == {
        name for each in feature.commands.values() for name in each
    }
    assert set(rest["commands"]) < set(everything["commands"])
    assert set(everything["kinds"]) - set(rest["kinds"]) == set(feature.handlers)


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES)
def test_disabled_feature_removes_only_its_part_of_openapi_document(feature: Feature) -> None:
    everything, rest = describe_without("")["document"], describe_without(feature.name)["document"]
    kept_paths = {path: item for path, item in everything["paths"].items() if path not in list_paths(feature)}
    assert rest["paths"] == kept_paths
    assert feature.openapi_tag is not None
    assert rest["tags"] == [tag for tag in everything["tags"] if tag["name"] != feature.openapi_tag[0]]
    all_schemas, kept_schemas = everything["components"]["schemas"], rest["components"]["schemas"]
    assert kept_schemas == {name: schema for name, schema in all_schemas.items() if name in kept_schemas}
    needed = find_reachable_schemas(everything | {"paths": kept_paths})
    own = find_reachable_schemas(everything) - needed
    assert needed <= set(kept_schemas)
    assert own.isdisjoint(kept_schemas)
    used_tags = {tag for item in rest["paths"].values() for operation in item.values() for tag in operation["tags"]}
    assert used_tags <= {tag["name"] for tag in rest["tags"]}


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES)
def test_disabled_feature_is_not_imported(feature: Feature) -> None:
    package = f"tidemill.{feature.name}"
    loaded = {name for name in describe_without(feature.name)["modules"] if name.startswith(package)}
    assert loaded <= {package, f"{package}.feature"}


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES)
def test_hooks_of_disabled_feature_are_found_by_kind(feature: Feature) -> None:
    """Another process may run the feature: its rules still apply when this process closes or reprocesses its jobs."""
    runtime = Runtime(None, Settings(), [], disabled_features=[feature])
    assert {kind: runtime.find_kind_hooks(kind) for kind in feature.kinds} == {
        kind: import_object(name) for kind, name in feature.kinds.items()
    }
    assert not runtime.kind_hooks
    assert runtime.find_kind_hooks("kind of a mill") is None


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES)
def test_worker_and_api_start_without_feature(feature: Feature, tidemill_database: str) -> None:
    assert run_without(feature.name, START, TIDEMILL_DATABASE_URL=tidemill_database) == "ok"


def test_demo_names_features_that_it_needs_and_that_are_disabled() -> None:
    environment = os.environ | {"TIDEMILL_DISABLED_FEATURES": "imports,watches,exports"}
    done = subprocess.run(
        [sys.executable, "-m", "tidemill", "demo"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "The demo needs disabled features: exports, imports" in done.stderr
