"""Services as they are declared, and the machines that are behind their names."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest

from connectors.servers import Server
from tidemill.connectors.remote.calls import Bounds, Caller
from tidemill.domain.errors import InvalidSettings
from tidemill.domain.identity import Role
from tidemill.domain.services import CallFailed, Reach, services
from tidemill.domain.services.service import undeclared


def test_a_service_says_where_it_is_and_who_may_use_it() -> None:
    document = {
        "services": {
            "shop-eu": {"url": "https://api.example/v1", "header": "X-Key", "use": ["user"], "limit": "shop"},
            "wikidata": {"url": "https://wikidata.reconci.link/en/api", "batch": 20, "protocol": "0.2"},
        }
    }
    shop, wikidata = services(document).values()
    assert (shop.secret_env, shop.host, shop.port) == ("TIDEMILL_SECRET_SHOP_EU", "api.example", 443)
    assert shop.secret({"TIDEMILL_SECRET_SHOP_EU": " x \n"}) == "x"
    assert (shop.is_for(Role.USER), wikidata.is_for(Role.USER), wikidata.is_for(Role.ADMIN)) == (True, False, True)
    assert wikidata.secret({}) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "services.x.url: it is missing"),
        ({"url": "ftp://x.example"}, "an http or https URL"),
        ({"url": "https://user:pw@x.example"}, "a user or a password does not belong here"),
        ({"url": "https://x.example/?key=1"}, "without ? and #"),
        ({"url": "https://x.example", "secret_env": "K"}, "without a header"),
        ({"url": "https://x.example", "header": "Host"}, "the name of a header"),
        ({"url": "https://x.example", "header": "X-Key", "value": "fixed"}, "{secret}"),
        ({"url": "http://x.example", "header": "X-Key"}, "over https only"),
        ({"url": "https://x.example", "secret": "abc"}, "unknown key; did you mean secret_env?"),
        ({"url": "https://x.example", "timeout": 0}, "above 0"),
        ({"url": "https://x.example", "use": ["boss"]}, "none of user, admin"),
    ],
)
def test_mistakes_are_told(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        services({"services": {"x": wrong}})
    assert said in str(caught.value)


def test_only_the_services_own_address_is_private_and_only_if_it_may_be() -> None:
    url = "http://recon.internal:8000/api"
    private = services({"services": {"x": {"url": url, "allow_private": True}}})["x"].reach()
    public = services({"services": {"x": {"url": url}}})["x"].reach()
    inside, outside = [ip_address("10.0.0.7")], [ip_address("93.184.216.34")]
    assert private.refusal("Recon.internal", inside, 8000) is None
    assert private.refusal("recon.internal", inside, 8001) is not None
    assert private.refusal("other.internal", inside, 8000) is not None
    assert public.refusal("recon.internal", inside, 8000) is not None
    assert public.refusal("recon.internal", outside, 8000) is None
    assert public.refusal("recon.internal", [*outside, *inside], 8000) is not None
    assert public.refusal("elsewhere.example", outside, 443) is None
    assert public.refusal("elsewhere.example", [ip_address("127.0.0.1")], 443) is not None


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["93.184.216.34", "10.0.0.7"], ["::ffff:169.254.169.254"], ["fe80::1"]]
)
async def test_a_name_that_leads_to_a_private_address_is_not_called(addresses: list[str]) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    caller = Caller(undeclared("http://rebound.example/").reach(), Bounds(), resolve_=resolve)
    with pytest.raises(CallFailed, match="it is not on the public internet") as caught:
        await caller.call("GET", "http://rebound.example/")
    assert (caught.value.code, caught.value.passing) == ("address_refused", False)
    await caller.close()


@pytest.mark.parametrize("host", ["münchen.example", "STRASSE.example", "xn--mnchen-3ya.example"])
async def test_a_service_is_known_by_its_name_however_that_is_spelt(host: str) -> None:
    """It is told its secret, and may be where it is said to be."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    with Server(lambda request: request.give(b"{}")) as server:
        url = f"http://{host}:{server.port}/"
        reach = services({"services": {"x": {"url": url, "allow_private": True}}})["x"].reach()
        caller = Caller(reach, Bounds(), secret=("X-Key", "geheim"), resolve_=resolve)
        await caller.call("GET", url)
        await caller.close()
        assert server.requests[0].headers["x-key"] == "geheim"


async def test_a_certificate_must_be_of_the_name_that_was_asked_for(tmp_path: Path) -> None:
    """The address is chosen by us, the certificate is checked for the name all the same."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    pem, crt = tmp_path / "both.pem", tmp_path / "its.crt"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=files.example"
    names = ["-addext", "subjectAltName=DNS:files.example", "-keyout", str(pem), "-out", str(crt)]
    await asyncio.to_thread(subprocess.run, ["openssl", *words.split(), *names], check=True, capture_output=True)
    pem.write_bytes(pem.read_bytes() + crt.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    with Server(lambda request: request.give(b"{}"), context) as server:
        for host, code in (("files.example", None), ("other.example", "service_certificate")):
            trusting = ssl.create_default_context(cafile=str(crt))
            reach = Reach(host, server.port, private=True, tls=True)
            caller = Caller(reach, Bounds(), resolve_=resolve, ssl_context=trusting)
            try:
                answered = await caller.call("GET", f"https://{host}:{server.port}/")
                assert (answered.body, code) == (b"{}", None)
            except CallFailed as error:
                assert error.code == code  # noqa: PT017  one of the two fails
            await caller.close()
