"""The command `tidemill config`, and the mill that TIDEMILL_APP or tidemill.toml names."""

import json
from typing import TYPE_CHECKING

import pytest

from tidemill.cli.admin import mask_secrets
from tidemill.config import Settings

if TYPE_CHECKING:
    from support.command import Tidemill

SECRET = "geheim"


def list_settings(tidemill: "Tidemill") -> dict[str, dict[str, object]]:
    lines = tidemill("config", "--json").out.splitlines()
    return {one["name"]: one for one in map(json.loads, lines)}


def test_config_lists_every_setting_with_value_and_source(tidemill: "Tidemill") -> None:
    tidemill.extra = {"TIDEMILL_BATCH_SIZE": "7"}
    tidemill.file("tidemill.toml", 'app = "app:mill"\n')
    settings = list_settings(tidemill)
    assert {*settings} == {*Settings.model_fields}
    assert settings["batch_size"]["value"] == 7
    assert settings["batch_size"]["source"] == "environment variable TIDEMILL_BATCH_SIZE"
    assert settings["claim_max"]["source"] == "default"
    assert settings["database_url"]["source"] == "environment variable DATABASE_URL"
    assert (settings["app"]["value"], settings["app"]["source"]) == ("app:mill", 'tidemill.toml, key "app"')
    assert settings["config"]["source"] == "default: tidemill.toml in the working directory"
    table = tidemill("config").out
    assert [name for name in Settings.model_fields if f"TIDEMILL_{name.upper()}" not in table] == []


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@h/x",
        f"postgresql://ann@h/x?password={SECRET}&sslpassword={SECRET}",
        f"host=h user=ann password={SECRET}",
        f"host=h password = 'a \\' {SECRET}' user=ann",
        f"ann:{SECRET}",
    ],
)
def test_config_masks_every_secret(tidemill: "Tidemill", url: str) -> None:
    tidemill.url = url
    tidemill.extra = {"TIDEMILL_BROKER": f"redis://:{SECRET}@h", "TIDEMILL_SECRET_SHOP": SECRET}
    for words in (["config"], ["config", "--json"]):
        said = tidemill(*words)
        assert SECRET not in said.out + said.err
    secrets = list_settings(tidemill)["secret_shop"]
    assert (secrets["value"], secrets["source"]) == ("********", "environment variable TIDEMILL_SECRET_SHOP")


def test_mask_keeps_url_without_secret() -> None:
    for url in ("postgresql://ann@h:5432/x?sslmode=require", "s3://bucket/prefix", "/var/lib/tidemill"):
        assert mask_secrets(url) == url


def test_mill_of_environment_replaces_option(tidemill: "Tidemill") -> None:
    rows = tidemill.file("rows.csv", "id\n1\n")
    assert 'No worker has registered a handler for kind "test"' in tidemill.refuses("submit", "test", rows)
    tidemill.extra = {"TIDEMILL_APP": "app:mill"}
    said = tidemill("submit", "test", rows)
    assert said.out.startswith("J")
    assert said.err.endswith("until you start one: tidemill worker app:mill\n")


def test_mill_of_file_is_used_without_environment_and_option(tidemill: "Tidemill") -> None:
    tidemill.file("tidemill.toml", 'app = "app:mill"\n')
    assert tidemill("submit", "test", tidemill.file("rows.csv", "id\n1\n")).out.startswith("J")
    assert tidemill("sources").out.startswith("No watches")


def test_mill_of_option_wins_over_environment_and_environment_over_file(tidemill: "Tidemill") -> None:
    tidemill.file("tidemill.toml", 'app = "of_file:mill"\n')
    rows = tidemill.file("rows.csv", "id\n1\n")
    expected = ' Module "{}" not found. Use MODULE:NAME, such as app:mill.'
    assert tidemill.refuses("worker") == 'tidemill.toml, key "app":' + expected.format("of_file")
    tidemill.extra = {"TIDEMILL_APP": "of_environment:mill"}
    for command in (["worker"], ["up"], ["serve"], ["import", rows, "--into", "x"], ["export", "x", "-o", "x.csv"]):
        assert tidemill.refuses(*command) == "TIDEMILL_APP:" + expected.format("of_environment")
    assert tidemill.refuses("worker", "of_option:mill") == expected.format("of_option").strip()
    assert tidemill("submit", "test", rows, "--app", "app:mill").out.startswith("J")


def test_invalid_app_key_in_file_is_reported_with_path(tidemill: "Tidemill") -> None:
    tidemill.file("tidemill.toml", "app = 1\n")
    assert tidemill.refuses("worker").startswith("tidemill.toml: app: Input should be MODULE:NAME of a mill")
