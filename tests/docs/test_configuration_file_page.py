"""The page of ``tidemill.toml`` lists exactly the keys and defaults that the sections accept, and its examples load."""

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tidemill.app.feature_list import load_features
from tidemill.config import Settings
from tidemill.config_file import APP_KEY, CORE_SECTIONS, find_configured_app_and_source
from tidemill.config_sections import ConfigTable
from tidemill.distributions.config import DatasetFieldTable, DatasetTable, parse_datasets
from tidemill.distributions.dataset import Dataset
from tidemill.enrichment.config import ServiceTable, parse_services
from tidemill.enrichment.external_service import ExternalService
from tidemill.imports.import_file_task import ImportFileTask
from tidemill.jobs.submission import KindTable, parse_kind_roles
from tidemill.limits.config import LimiterTable, parse_limiters
from tidemill.tables.config import (
    ConditionTable,
    FieldTable,
    ReferenceTable,
    ResourceTable,
    parse_resource_declarations,
)
from tidemill.tables.resource import ResourceDeclaration
from tidemill.watches.config import JOB_TASK_KEY, JobFileTask, make_watch_table_model, parse_watches
from tidemill.watches.file_names import FilePattern
from tidemill.watches.watch import Watch, parse_duration_s

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "configuration-file.md").read_text()
IMPORT_TASKS = {"import": ImportFileTask}
WATCH_TABLE = make_watch_table_model({JOB_TASK_KEY: JobFileTask, **IMPORT_TASKS})

# The runtime class has the defaults of the keys that a table does not set.
MODELS: dict[str, tuple[type[ConfigTable], type[Any] | None]] = {
    "a resource": (ResourceTable, ResourceDeclaration),
    "a field": (FieldTable, None),
    "a reference": (ReferenceTable, None),
    "a condition": (ConditionTable, None),
    "a limiter": (LimiterTable, None),
    "a kind": (KindTable, None),
    "a dataset": (DatasetTable, Dataset),
    "a dataset field": (DatasetFieldTable, None),
    "a service": (ServiceTable, ExternalService),
    "a watch": (WATCH_TABLE, Watch),
    "job": (JobFileTask, None),
    "import": (ImportFileTask, None),
}
PARSERS: dict[str, Callable[[Mapping[str, Any]], Mapping[str, object]]] = {
    "resources": parse_resource_declarations,
    "limiters": parse_limiters,
    "kinds": parse_kind_roles,
    "datasets": parse_datasets,
    "services": parse_services,
    "watches": lambda document: parse_watches(document, IMPORT_TASKS),
}


def list_rows(heading: str) -> dict[str, str]:
    """Return the keys of the table below a heading, with the defaults."""
    _, found, rest = PAGE.partition(f"### Keys of {heading}\n")
    assert found, f"The page has no table for {heading}"
    section = re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", section, re.MULTILINE))


def list_defaults(model: type[ConfigTable], runtime: type[Any] | None) -> dict[str, Any]:
    """Return the keys of a model with the defaults that apply at run time; ``...`` if the key is required."""
    actual = {}
    for field in dataclasses.fields(runtime) if runtime is not None else ():
        if field.default is not dataclasses.MISSING:
            actual[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            actual[field.name] = field.default_factory()
    return {
        field.alias or name: ... if field.is_required() else actual.get(name, field.get_default())
        for name, field in model.model_fields.items()
    }


def format_default(key: str, default: Any) -> str:
    if default is ...:
        return "required"
    if key == "columns" and default is None:
        return '`"all"`'
    if isinstance(default, FilePattern):
        (default,) = default.globs
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return "none" if default is None or default in ("", (), {}) else f"`{json.dumps(default)}`"


@pytest.mark.parametrize("heading", MODELS)
def test_table_lists_every_key_with_its_default(heading: str) -> None:
    shown = list_rows(heading)
    expected = {key: format_default(key, value) for key, value in list_defaults(*MODELS[heading]).items()}
    for key in ("every", "stable_for"):  # shown as a duration, stored in seconds
        if key in shown:
            shown[key] = f"`{parse_duration_s(shown[key].strip('`').strip(chr(34))):g}`"
    assert shown == expected


def test_section_table_lists_every_section() -> None:
    known = {*CORE_SECTIONS, *(section for feature in load_features() for section in feature.config_sections)}
    assert set(re.findall(r"^\| \[`(\w+)`\]", PAGE, re.MULTILINE)) == known == set(PARSERS)


def test_examples_load_and_cover_every_section(tmp_path: Path) -> None:
    seen = set()
    for example in re.findall(r"^```toml[^\n]*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        document = tomllib.loads(example)
        if APP_KEY in document:
            path = tmp_path / "tidemill.toml"
            path.write_text(example)
            assert find_configured_app_and_source(Settings(config=path, app=None)) == (
                document.pop(APP_KEY),
                f'{path}, key "app"',
            )
        for section, tables in document.items():
            assert PARSERS[section](document).keys() == tables.keys()
            seen.add(section)
    assert seen == set(PARSERS)
