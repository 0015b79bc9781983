"""Services as they are declared."""

from ipaddress import ip_address

import pytest

from tidemill.domain.errors import InvalidSettings
from tidemill.domain.identity import Role
from tidemill.domain.services import services


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
