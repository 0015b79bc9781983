"""Translations: texts in a file that are replaced before they are read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imports.scenes import Scene
from support import job_of, rows
from support.import_requests import CSV_TYPE, Shop, open_shop
from tidemill import Mill
from tidemill.core.errors import InvalidInput
from tidemill.imports.import_plan import TRANSLATED_VALUES_MAX, TRANSLATION_MAX_CHARS, normalize_translations
from tidemill.store.database import Database
from tidemill.tables.resource import Field, Resource, TableName

if TYPE_CHECKING:
    from support.command import Tidemill

TABLE = "CREATE TABLE places (code text PRIMARY KEY, country text CHECK (country IN ('DE', 'FR')), size integer)"
GERMAN = {"country": {"Germany": "DE", " Deutschland": "DE", "n/a": ""}, "size": {"gross": "100"}}
PLACES = Resource(
    name="places",
    table=TableName("public", "places"),
    fields=(Field(name="code", column="code", type="text"), Field(name="country", column="country", type="text")),
)


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    return await open_shop(make_api, toy, tmp_path)


async def test_translation_replaces_trimmed_text_before_type_and_rules_are_checked(scene: Scene) -> None:
    await scene.table(TABLE)
    file = "code,country,size\na,Germany,gross\nb, Deutschland ,7\nc,germany,7\nd,FR,7\ne,n/a,\n"
    job = await scene.run(file, "places", translations=GERMAN)
    assert await scene.errors(job) == [(3, "country.enum")]
    assert await scene.rows("SELECT code, country, size FROM places ORDER BY code") == [
        ("a", "DE", 100),
        ("b", "DE", 7),
        ("d", "FR", 7),
        ("e", None, None),
    ]


async def test_translation_of_json_number_compares_its_text(scene: Scene) -> None:
    await scene.table(TABLE)
    file = '{"code": 1, "country": true, "size": 5}\n{"code": "x", "country": null, "size": "5"}\n'
    translations = {"code": {"1": "one"}, "country": {"true": "DE"}, "size": {"5": "50"}}
    await scene.run(file, "places", name="rows.ndjson", translations=translations)
    assert await scene.rows("SELECT * FROM places ORDER BY code") == [("one", "DE", 50), ("x", None, 50)]


async def test_keys_that_are_equal_after_translation_are_duplicates(scene: Scene) -> None:
    await scene.table(TABLE)
    job = await scene.run("code\nfirst\n1\n", "places", translations={"code": {"first": "1"}})
    assert await scene.errors(job) == [(2, "code.duplicate")]
    assert await scene.rows("SELECT code FROM places") == [("1",)]


def test_invalid_translations_are_rejected_with_reason() -> None:
    assert normalize_translations({"country": {" a ": "b", "a": "b"}}, PLACES) == {"country": {"a": "b"}}
    long = "x" * (TRANSLATION_MAX_CHARS + 1)
    cases = {
        'places has no such field; did you mean "country"': {"contry": {"a": "b"}},
        "a value to translate is empty": {"country": {" ": "DE"}},
        "is longer than 1,000 characters": {"country": {"a": long}},
        '"a " has two translations': {"country": {"a": "b", "a ": "c"}},
        "contains a character that PostgreSQL cannot store": {"country": {"a": "\0"}},
        "1,001 values; at most 1,000": {"country": {str(n): "" for n in range(TRANSLATED_VALUES_MAX + 1)}},
    }
    for reason, translations in cases.items():
        with pytest.raises(InvalidInput) as caught:
            normalize_translations(translations, PLACES)
        assert reason in str(caught.value)


async def test_http_import_applies_translations_and_returns_them(shop: Shop) -> None:
    words = json.dumps({"age": {"forty": "40"}})
    done = await shop.imported(b"email,name,age\nada@x.org,Ada,forty\n", translations=words)
    assert (done["status"], done["translations"]) == ("completed", {"age": {"forty": "40"}})
    assert await shop.people() == [("ada@x.org", "Ada", 40)]
    answer = await shop.post(translations='{"agee": {"a": "1"}}')
    assert answer.status_code == 422
    assert 'people has no such field; did you mean \\"age\\"' in answer.text
    answer = await shop.post(translations='{"age": "1"}')
    assert (answer.status_code, "translations" in answer.text) == (422, True)


async def test_preview_counts_rejected_values_beyond_the_shown_rows(shop: Shop) -> None:
    lines = [f"p{n}@x.org,P,{'old' if n % 3 == 0 else 'young' if n % 5 == 0 else n}" for n in range(60)]
    content = "\n".join(["email,name,age", *lines, "x,Bad,1"]).encode()
    params: dict[str, Any] = {"resource": "people", "rows": 2}
    answer = await shop.ada.post("/v1/imports/preview", params=params, content=content, headers=CSV_TYPE)
    seen = answer.json()
    assert len(seen["rows"]) == 2
    assert [(one["value"], one["rows"]) for one in seen["rejected_values"]["age"]] == [("old", 20), ("young", 8)]
    assert [one["value"] for one in seen["rejected_values"]["email"]] == ["x"]
    params["translations"] = '{"age": {"old": "70"}}'
    answer = await shop.ada.post("/v1/imports/preview", params=params, content=content, headers=CSV_TYPE)
    assert [one["value"] for one in answer.json()["rejected_values"]["age"]] == ["young"]


async def test_translate_option_replaces_texts_and_reports_invalid_values(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    file = tidemill.file("places.csv", "code,country,size\na,Germany,1\nb,a=b:c,2\n")
    options = ("import", file, "--into", "places")
    tidemill(*options, "--translate", "country:Germany=DE", "--translate", "country:a=b:c=FR")
    assert await rows(db, "SELECT code, country FROM places ORDER BY code") == [("a", "DE"), ("b", "FR")]
    refused = tidemill.refuses(*options, "--translate", "country=DE")
    assert 'Invalid value "country=DE" for --translate. Use FIELD:TEXT=NEW.' in refused
    refused = tidemill.refuses(*options, "--translate", "country:a=1", "--translate", "country:a=2")
    assert '"a" in field "country" has two translations' in refused


async def test_python_import_applies_translations(scene: Scene, tmp_path: Path) -> None:
    await scene.table(TABLE)
    path = tmp_path / "places.csv"
    path.write_text("code,country\na,Germany\n")
    german = {"country": {"Germany": "DE"}}
    job_id = await scene.mill.submit_import_async(path, "public.places", translations=german)
    await scene.finish(job_id)
    assert (await job_of(scene.db, job_id)).counts.done == 1
    assert await scene.rows("SELECT country FROM places") == [("DE",)]
