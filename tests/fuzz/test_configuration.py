"""Sections of `tidemill.toml`, environment settings, and the parameters of jobs: all problems are reported by name."""

import copy
import os
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from fuzz.mutations import any_json, mutated_text
from fuzz.reading import assert_safe, run_or_reject
from fuzz.targets import fuzz
from tidemill.cli.admin import list_setting_values, mask_secrets
from tidemill.config import Settings, load_settings
from tidemill.config_file import load_config_file
from tidemill.core.errors import InvalidInput, InvalidRequest, InvalidSettings
from tidemill.core.policies import FailurePolicy
from tidemill.distributions.config import parse_datasets
from tidemill.enrichment.config import parse_services
from tidemill.enrichment.external_service import ServiceCallError
from tidemill.enrichment.job_requests import (
    EmptyTemplateValue,
    EnrichRequest,
    JsonPath,
    MatchRequest,
    PathTraversal,
    fill_json_template,
    fill_path_template,
    list_template_problems,
    normalize_entity_name,
)
from tidemill.enrichment.reconciliation import decode_answers
from tidemill.imports.import_file_task import ImportFileTask
from tidemill.limits.config import parse_limiters
from tidemill.tables.config import parse_resource_declarations
from tidemill.watches.config import parse_watches

DOCUMENT = tomllib.loads("""
[resources.people]
table = "shop.people"
key = ["email"]
read = ["user"]
columns = "all"
fields.email = { format = "email", unique = true }
fields.born = { type = "date", date_formats = ["%d.%m.%Y"], minimum = 1900-01-01 }
fields.code = { pattern = "[A-Z]+", normalize = ["trim"], references = "shop.codes.code", enum = ["A", 1, true] }
references = [{ fields = ["email"], table = "shop.x", columns = ["y"] }]
conditions = [{ field = "a", values = ["b"], needs = ["c"] }]
[limiters.shop]
rate = "5/s"
burst = 10
concurrency = 3
lowest = "1/min"
[services.wiki]
url = "https://wiki.example/api"
header = "Authorization"
value = "Bearer ${secret}"
timeout = 5.5
use = ["user"]
[datasets.letters]
query = "SELECT * FROM x WHERE a = %(name)s"
fields = { name = "text", day = { type = "date", required = false } }
date_field = "day"
[watches.nightly]
source = "sftp://ada@files.example.com:2222//srv/out"
pattern = ["*.csv", "**/[a-z]*.json"]
import = { resource = "users", mode = "upsert", mapping = { a = "b" } }
every = "5m"
layout = { delimiter = ";" }
policy = { max_failures = 5 }
""")
SECTIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "resources": parse_resource_declarations,
    "limiters": parse_limiters,
    "services": parse_services,
    "datasets": parse_datasets,
    "watches": lambda document: parse_watches(document, {"import": ImportFileTask}),
}
WORDS = st.sampled_from(
    [
        *("5/s", "0/s", "1e999/s", "1s", "manual", "", "*", "[z-a]", "**", "(", "a{1,99999}", "%", "%Q", "all", "trim"),
        *(
            "shop.people",
            '"a',
            "pg_catalog.x.y",
            "https://u:p@h/",
            "http://h:99999999999/",
            "sftp://",
            "text",
            "${secret}",
        ),
    ]
)
VALUES = any_json(word=WORDS) | WORDS | st.dictionaries(st.sampled_from(["type", "pattern", "mode", "x"]), WORDS)
SETTING_NAMES = [name for name in Settings.model_fields if name not in ("home", "config", "known_hosts", "app")]
SETTING_TEXTS = st.text(max_size=12) | WORDS | st.sampled_from(
    [
        *("0", "-1", "1e9", "9" * 5_000, "true", "[", '["a"]', '{"a": "b"}', '{"a": {"path": 1}}', "a,,b", " ", "s3://b/p"),
        *("10.0.0.0/8", "postgresql://u:p@h/d", "amqp://u:s@h", "[" * 3_000, "\u0665", "nan", "inf"),
        '{"a": {"path": "b", "read": ["x"]}}',
    ]
)  # fmt: skip


def list_paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, one in items for inner in list_paths(one, (*path, key)))]


@fuzz(
    examples=150,
    section=st.sampled_from(list(SECTIONS)),
    at=st.integers(0, 10**6),
    value=VALUES,
    name=st.sampled_from([None, None, "colour", "é", "Type"]),
)
def test_any_value_in_a_section_is_parsed_or_reported(section: str, at: int, value: Any, name: str | None) -> None:
    document = {section: copy.deepcopy(DOCUMENT[section])}
    paths = list_paths(document)[1:]
    *steps, last = paths[at % len(paths)]
    table: Any = document
    for step in steps:
        table = table[step]
    table[name if name and isinstance(table, dict) else last] = value
    try:
        SECTIONS[section](document)
    except InvalidSettings as error:
        assert str(error).startswith(f"Invalid section [{section}]:")
        assert all(mark.isprintable() or mark in "\t\n" for mark in str(error))


TOML_FRAGMENTS = ["[", "]", "[[a]]", '"', "'''", "=", "\n", "{", "}", "inf", "1979-05-27", "\\", "[" * 2_000, "a.b.c"]


@fuzz(
    examples=30, text=mutated_text(["[resources.a]\ntable = 'x'\n", "", "a = [1, {b = 2}]\n"], fragments=TOML_FRAGMENTS)
)
def test_any_configuration_file_is_read_or_reported(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("config") / "tidemill.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_config_file(path, lambda document: document)
    except InvalidSettings as error:
        assert_safe(str(error).removeprefix(str(path)))


@fuzz(examples=80, values=st.dictionaries(st.sampled_from(SETTING_NAMES), SETTING_TEXTS, min_size=1, max_size=3))
def test_any_environment_is_loaded_or_every_problem_is_reported(values: dict[str, str]) -> None:
    environment = {f"TIDEMILL_{name.upper()}": text for name, text in values.items() if "\x00" not in text}
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environment.items():
            patch.setenv(name, text.encode("utf-8", "replace").decode())
        try:
            settings = load_settings()
        except InvalidSettings as error:
            assert "TIDEMILL_" in str(error) or " must " in str(error)
            assert all(mark.isprintable() or mark in "\t\n" for mark in str(error))
        else:
            list_setting_values(settings)
    assert not any(name.startswith("TIDEMILL_") and name in environment for name in os.environ)


PASSWORDS = st.text("abcXYZ019!$*'()+-_.~;,", min_size=6, max_size=12)


@fuzz(password=PASSWORDS, form=st.sampled_from(["postgresql://ada:{}@h/d", "amqp://ada:{}@h:5672//v", "redis://:{}@h"]))
def test_password_of_a_url_is_masked(password: str, form: str) -> None:
    assume(set(password) != {"*"})  # a password that looks like its mask
    assert password not in mask_secrets(form.format(password))


PATHS = ("$.offers[0].price", "$['odd name'][-1]", "$.offers[*].price", '$["a\\"b"].*', "$")
PATH_FRAGMENTS = ["$", ".", "[", "]", "'", '"', "*", "\\", "..", "[0]", "[-1]", "[999999999]", "é", "?(@.a)"]
ROW = st.dictionaries(
    st.sampled_from(["a", "b", "offers", "odd name"]),
    any_json(hostile=st.sampled_from(["..", "%2e%2e", "a/../b", "%" + "25" * 300 + "2e"])),
)


@fuzz(path=mutated_text(PATHS, fragments=PATH_FRAGMENTS) | st.sampled_from(PATHS), document=any_json() | ROW)
def test_any_json_path_finds_a_value_or_is_rejected(path: str, document: Any) -> None:
    found = run_or_reject(lambda: JsonPath.parse(path), ValueError)
    if found is not None:
        result = found.find(document)
        assert None not in found.steps or (isinstance(result, list) and len(result) <= 1_000)


TEMPLATES = ("/items/{a}?q={b}", "{a}", "{{{a}}}", "/x/{odd name}/..", "")


@fuzz(
    examples=60,
    template=mutated_text(TEMPLATES, fragments=["{", "}", "{{", "{a}", "/", "..", "%2e", "?", "\\"]),
    row=ROW,
)
def test_filled_path_has_no_traversal_and_no_part_of_another_segment(template: str, row: dict[str, Any]) -> None:
    if any(list_template_problems(template)):
        return
    fill_json_template({"a": [template]}, row)
    try:
        path = fill_path_template(template, row).partition("?")[0]
    except (EmptyTemplateValue, PathTraversal):
        return
    if "{" not in template.partition("?")[2]:
        assert path.count("/") == template.partition("?")[0].count("/")
    assert not {".", ".."} & set(path.split("/"))


MATCH = {"service": "wiki", "query": "name", "properties": {"P1": "country"}, "strategies": ["exact", "column:alias"]}
ENRICH = {
    "service": "wiki",
    "path": "/items/{id}",
    "fields": {"price": "$.price"},
    "method": "POST",
    "body": {"a": "{b}"},
}


@fuzz(
    examples=60,
    base=st.sampled_from([MATCH, ENRICH]),
    changes=st.dictionaries(
        st.sampled_from([*MATCH, *ENRICH, "limit", "threshold", "headers", "not_found_delay", "required"]),
        VALUES,
        max_size=2,
    ),
)
def test_any_parameters_of_a_service_job_are_parsed_or_rejected(base: dict[str, Any], changes: dict[str, Any]) -> None:
    model = MatchRequest if base is MATCH else EnrichRequest
    run_or_reject(lambda: model.from_params(base | changes), InvalidRequest)
    run_or_reject(lambda: FailurePolicy.from_json(changes), InvalidInput)


@fuzz(text=st.text(max_size=40) | st.text("a. &'", max_size=300))
def test_any_name_is_normalized_to_words(text: str) -> None:
    normal = normalize_entity_name(text)
    assert normal == " ".join(normal.split())


ANSWERS = (
    '{"q0": {"result": [{"id": "Q1", "name": "a", "score": 9, "match": true, "type": [{"id": "x"}]}]}}',
    '{"results": [{"candidates": []}]}',
)
QUERIES = MatchRequest.from_params(MATCH).build_queries({"name": "Ada"})[:1]


@fuzz(
    body=mutated_text(ANSWERS, fragments=["NaN", "1e999", "[", "{", "null", '"', "9" * 400, "[" * 2_000]),
    protocol=st.sampled_from(["0.2", "1.0"]),
)
def test_any_answer_of_a_service_gives_candidates_or_a_declared_error(body: str, protocol: Any) -> None:
    found = run_or_reject(
        lambda: decode_answers(body.encode("utf-8", "surrogatepass"), {"q0": QUERIES[0]}, protocol), ServiceCallError
    )
    for answer in (found or {}).values():
        if isinstance(answer, str):
            assert_safe(answer)
