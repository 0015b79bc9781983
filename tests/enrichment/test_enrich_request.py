"""Enrich jobs: one request per row, and the fields extracted from its response."""

import json

import pytest

from enrichment.scenes import Scene
from support.reconciliation_services import Reply, Request, Scripted, scripted, told
from tidemill.core.errors import InvalidRequest
from tidemill.enrichment.job_requests import EnrichRequest, JsonPath

DOCUMENT = {"offers": [{"price": 5, "odd name": "x"}, {"price": 7}], "title": None, "a-b": {"c": [1, 2]}}
PRICE = {"price": "$.offers[0].price"}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.offers[0].price", 5),
        ("$.offers[-1].price", 7),
        ("$.offers[*].price", [5, 7]),
        ("$['offers'][0][\"odd name\"]", "x"),
        ("$.a-b.*", [[1, 2]]),
        ("$.title", None),
        ("$.title.deeper", None),
        ("$.offers[9].price", None),
        ("$.offers.price", None),
        ("$", DOCUMENT),
    ],
)
def test_json_path_finds_value_in_document(path: str, found: object) -> None:
    assert JsonPath.parse(path).find(DOCUMENT) == found


@pytest.mark.parametrize(
    "path", ["offers", "$offers", "$..price", "$.offers[?(@.price)]", "$.offers[1:2]", "$['x", "$." + "x" * 600]
)
def test_unsupported_json_path_is_rejected(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        JsonPath.parse(path)


def test_invalid_enrich_request_reports_all_problems() -> None:
    wrong = {
        "path": "items/{sku",
        "method": "PUT",
        "fields": {"price": "offers"},
        "headers": {"Authorization": "Bearer x"},
    }
    with pytest.raises(InvalidRequest) as caught:
        EnrichRequest.from_params(wrong)
    problems = "\n".join(caught.value.problems)
    for word in (
        "params.service: Field required",
        '"{" has no matching brace',
        'must be one of "GET", "POST", not "PUT"',
        "must start with $",
    ):
        assert word in problems
    assert "Authorization is a secret" in problems
    assert "Bearer x" not in problems


@pytest.mark.parametrize(
    "path",
    [
        *("//evil.example/x", "https://evil.example", "/../x", "/a/%2e%2e/x", "/x y", "/x#y", "/\\x"),
        *("/a/%252e%252e/x", "/a/..%2fx", "/a%2F..%2Fx", "/a/..%5Cx", "/a%255c..%255cx", "/a/..;/x", "/a/.%2e;v=1/x"),
        *("/a/%25252E./x", "/a/..", "/."),
    ],
)
def test_enrich_path_that_leaves_service_is_rejected(path: str) -> None:
    with pytest.raises(InvalidRequest):
        EnrichRequest.from_params({"service": "shop", "path": path, "fields": PRICE})


@pytest.mark.parametrize("path", ["/a..b/{sku}", "/a/...", "/x%2fy/%20", "/search?q={name}..", "/1.0/{sku}"])
def test_enrich_path_with_harmless_dots_is_accepted(path: str) -> None:
    assert EnrichRequest.from_params({"service": "shop", "path": path, "fields": PRICE}).path == path


@pytest.mark.parametrize("value", ["../admin", "a/../../admin", "..\\admin", "%2e%2e/admin", "..;/admin"])
async def test_row_value_that_leaves_service_path_fails_row(scene: Scene, value: str) -> None:
    async with scripted(lambda _: told({"offers": [{"price": 1}]})) as service:
        scene.declare("shop", service.url)
        row, fine = await scene.run(
            [{"sku": value, "q": "1"}, {"sku": "1", "q": value}],
            kind="http.enrich",
            path="/items/{sku}?q={q}",
            fields=PRICE,
        )
        assert (row.status, row.error["code"]) == ("failed", "invalid")
        assert fine.status == "done"
        assert len(service.requests) == 1


async def test_enrich_sets_result_or_status_of_each_row(scene: Scene) -> None:
    def answer(request: Request) -> Reply:
        known = {"/v1/items/A-1?lang=en": 995, "/v1/items/a%2Fb%20%3F%26%C3%BC?lang=en": 1}
        price = known.get(request.path)
        return Reply(404) if price is None else told({"offers": [{"price": price, "currency": "EUR"}]})

    async with scripted(answer) as shop:
        scene.declare("shop", f"{shop.url}/v1/")
        rows = await scene.run(
            [{"sku": "A-1"}, {"sku": "a/b ?&ü"}, {"sku": "gone"}, {"sku": ""}, {"sku": ".."}, {"id": 1}],
            "http.enrich",
            path="/items/{sku}?lang=en",
            fields=PRICE | {"currency": "$.offers[0].currency"},
        )
        one, odd, gone, empty, dots, other = rows
        assert (one.status, one.result) == ("done", {"price": 995, "currency": "EUR"})
        assert (odd.status, odd.result["price"]) == ("done", 1)
        assert (gone.status, gone.attempts) == ("not_found", 2)
        assert (empty.status, dots.status) == ("skipped", "skipped")
        assert (other.status, other.error["code"]) == ("failed", "invalid")


async def test_enrich_post_sends_body_built_from_row(scene: Scene) -> None:
    async with scripted(lambda request: told({"offers": [{"price": json.loads(request.body)["q"]["n"]}]})) as shop:
        scene.declare("shop", shop.url)
        body = {"q": {"n": "{count}", "text": 'sku {sku} "{{as it is}}"'}, "fixed": [1, None]}
        headers = {"X-Trace": "on"}
        params = {"path": "/find", "method": "POST", "body": body, "fields": PRICE, "headers": headers}
        (row,) = await scene.run([{"sku": 'a"b', "count": 3}], "http.enrich", **params)
        assert row.result == {"price": 3}
        (request,) = shop.requests
        assert json.loads(request.body) == {"q": {"n": 3, "text": 'sku a"b "{as it is}"'}, "fixed": [1, None]}
        assert (request.headers["x-trace"], request.headers["content-type"]) == ("on", "application/json")


async def test_missing_required_field_makes_row_not_found(scene: Scene) -> None:
    async with scripted(lambda _: told({"offers": [{"currency": "EUR"}]})) as shop:
        scene.declare("shop", shop.url)
        fields = PRICE | {"currency": "$.offers[0].currency"}
        (row,) = await scene.run([{"sku": "1"}], "enrich", path="/{sku}", fields=fields, required=["price"])
        assert (row.status, row.result) == ("not_found", {"price": None, "currency": "EUR"})
        (row,) = await scene.run([{"sku": "1"}], "enrich", path="/{sku}", fields=fields)
        assert (row.status, row.result["price"]) == ("done", None)


async def test_secret_is_sent_only_to_its_service_and_never_stored_or_logged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The service echoes the secret or redirects to another host. The secret is not stored, logged or passed on."""
    monkeypatch.setenv("TIDEMILL_SECRET_SHOP", "s3cret-of-the-shop")
    async with scripted(lambda request: told({"said": request.headers})) as other:
        monkeypatch.setattr(
            "tidemill.enrichment.external_service.ServiceAddressPolicy.explain_refusal", lambda *_: None
        )

        def answer(request: Request) -> Reply:
            if request.path == "/away":
                return Reply(307, b"", {"Location": other.url})
            return told({"said": request.headers})

        async with scripted(answer) as shop:
            scene.declare("shop", shop.url, header="Authorization", value="Bearer {secret}")
            here, away = await scene.run(
                [{"at": "here"}, {"at": "away"}], "http.enrich", path="/{at}", fields={"said": "$.said"}
            )
            assert shop.requests[0].headers["authorization"] == "Bearer s3cret-of-the-shop"
            assert here.result["said"]["authorization"] == "Bearer ***"
            assert "authorization" not in away.result["said"]
            assert "authorization" not in other.requests[0].headers
    assert not await scene.is_anywhere("s3cret")
    assert "s3cret" not in "".join(capfd.readouterr())


async def test_unset_secret_fails_row_with_name_of_variable(scene: Scene) -> None:
    async with scripted(lambda _: told({})) as shop:
        scene.declare("shop", shop.url, header="X-Api-Key", secret_env="SHOP_KEY")
        (row,) = await scene.run([{"sku": "1"}], "http.enrich", path="/{sku}", fields=PRICE)
        assert (row.error["code"], row.error["retryable"]) == ("service_secret", True)
        assert "SHOP_KEY" in row.error["reason"]
        assert shop.requests == []


async def test_worker_without_declared_service_leaves_row_to_other_workers(scene: Scene, service: Scripted) -> None:
    job_id = await scene.submit([{"name": "Ada"}])
    declared = (scene.settings.home / "tidemill.toml").read_text()
    (scene.settings.home / "tidemill.toml").write_text("")
    await scene.drain()
    assert await scene.rows(job_id) == [], "no worker reads its file"
    (scene.settings.home / "tidemill.toml").write_text(declared)
    await scene.drain()
    (row,) = await scene.rows(job_id)
    assert row.status == "done"
