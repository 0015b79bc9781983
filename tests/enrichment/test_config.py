"""Declarations of services, and the addresses that calls may connect to."""

import asyncio
import ssl
import subprocess
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest

from support import require
from support.loopback_server import Server
from tidemill.core.errors import InvalidSettings
from tidemill.core.principal import Role
from tidemill.enrichment.config import parse_services
from tidemill.enrichment.external_service import ServiceAddressPolicy, ServiceCallError, make_service_from_url
from tidemill.enrichment.service_client import ServiceCallLimits, ServiceHttpClient


def test_service_declaration_sets_address_secret_and_allowed_roles() -> None:
    document = {
        "services": {
            "shop-eu": {"url": "https://api.example/v1", "header": "X-Key", "use": ["user"], "limit": "shop"},
            "wikidata": {"url": "https://wikidata.reconci.link/en/api", "batch": 20, "protocol": "0.2"},
        }
    }
    shop, wikidata = parse_services(document).values()
    assert (shop.secret_env, shop.host, shop.port) == ("TIDEMILL_SECRET_SHOP_EU", "api.example", 443)
    assert shop.get_secret_from_environment({"TIDEMILL_SECRET_SHOP_EU": " x \n"}) == "x"
    assert (
        shop.is_allowed_for(Role.USER),
        wikidata.is_allowed_for(Role.USER),
        wikidata.is_allowed_for(Role.ADMIN),
    ) == (True, False, True)
    assert wikidata.get_secret_from_environment({}) is None


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, "services.x.url: Field required"),
        ({"url": "ftp://x.example"}, "an http or https URL"),
        ({"url": "https://user:pw@x.example"}, "services.x.url: Remove the user and the password"),
        ({"url": "https://x.example/?key=1"}, "Remove ?, # and spaces"),
        ({"url": "https://x.example", "secret_env": "K"}, 'services.x.secret_env: Requires "header"'),
        ({"url": "https://x.example", "header": "Host"}, "services.x.header: Input should be the name of a header"),
        ({"url": "https://x.example", "header": "X-Key", "value": "fixed"}, "{secret}"),
        ({"url": "http://x.example", "header": "X-Key"}, "Secrets require https"),
        ({"url": "https://x.example", "secret": "abc"}, 'Unknown key; did you mean "secret_env"?'),
        ({"url": "https://x.example", "timeout": 0}, "services.x.timeout: Input should be greater than 0"),
        ({"url": "https://x.example", "use": ["boss"]}, 'must be one of "user", "admin"'),
    ],
)
def test_invalid_service_declaration_is_rejected_with_reason(wrong: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_services({"services": {"x": wrong}})
    assert reason in str(caught.value)


def test_private_address_is_allowed_only_for_declared_host_and_port() -> None:
    url = "http://recon.internal:8000/api"
    private = parse_services({"services": {"x": {"url": url, "allow_private": True}}})["x"].build_address_policy()
    public = parse_services({"services": {"x": {"url": url}}})["x"].build_address_policy()
    inside, outside = [ip_address("10.0.0.7")], [ip_address("93.184.216.34")]
    assert private.explain_refusal("Recon.internal", inside, 8000) is None
    assert private.explain_refusal("recon.internal", inside, 8001) is not None
    assert private.explain_refusal("other.internal", inside, 8000) is not None
    assert public.explain_refusal("recon.internal", inside, 8000) is not None
    assert public.explain_refusal("recon.internal", outside, 8000) is None
    assert public.explain_refusal("recon.internal", [*outside, *inside], 8000) is not None
    assert public.explain_refusal("elsewhere.example", outside, 443) is None
    assert public.explain_refusal("elsewhere.example", [ip_address("127.0.0.1")], 443) is not None


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["93.184.216.34", "10.0.0.7"], ["::ffff:169.254.169.254"], ["fe80::1"]]
)
async def test_host_resolving_to_private_address_is_not_called(addresses: list[str]) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    caller = ServiceHttpClient(
        make_service_from_url("http://rebound.example/").build_address_policy(), ServiceCallLimits(), resolver=resolve
    )
    with pytest.raises(ServiceCallError, match="not on the public internet") as caught:
        await caller.call("GET", "http://rebound.example/")
    assert (caught.value.code, caught.value.is_transient) == ("address_refused", False)
    await caller.close()


@pytest.mark.parametrize("host", ["münchen.example", "STRASSE.example", "xn--mnchen-3ya.example"])
async def test_service_host_is_recognized_in_every_spelling(host: str) -> None:
    """The client sends the secret, and accepts the private address that is allowed for the host."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    with Server(lambda request: request.give(b"{}")) as server:
        url = f"http://{host}:{server.port}/"
        reach = parse_services({"services": {"x": {"url": url, "allow_private": True}}})["x"].build_address_policy()
        caller = ServiceHttpClient(reach, ServiceCallLimits(), secret=("X-Key", "geheim"), resolver=resolve)
        await caller.call("GET", url)
        await caller.close()
        assert server.requests[0].headers["x-key"] == "geheim"


async def test_service_certificate_must_match_requested_host(tmp_path: Path) -> None:
    """The client connects to a resolved address, but checks the certificate against the host name."""
    require("openssl")
    pem, crt = tmp_path / "both.pem", tmp_path / "its.crt"
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=files.example"
    names = ["-addext", "subjectAltName=DNS:files.example", "-keyout", str(pem), "-out", str(crt)]
    await asyncio.to_thread(subprocess.run, ["openssl", *options.split(), *names], check=True, capture_output=True)
    pem.write_bytes(pem.read_bytes() + crt.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    with Server(lambda request: request.give(b"{}"), context) as server:
        for host, code in (("files.example", None), ("other.example", "service_certificate")):
            trusting = ssl.create_default_context(cafile=str(crt))
            reach = ServiceAddressPolicy(host, server.port, allow_private=True, tls=True)
            caller = ServiceHttpClient(reach, ServiceCallLimits(), resolver=resolve, ssl_context=trusting)
            try:
                answered = await caller.call("GET", f"https://{host}:{server.port}/")
                assert (answered.body, code) == (b"{}", None)
            except ServiceCallError as error:
                assert error.code == code  # noqa: PT017  one of the two fails
            await caller.close()
