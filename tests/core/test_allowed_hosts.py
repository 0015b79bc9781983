"""Tests of the hosts that downloads may connect to."""

from ipaddress import ip_address

import pytest

from tidemill.core.allowed_hosts import (
    NOT_PUBLIC_REASON,
    AllowedHost,
    explain_refused_host,
    explain_refused_port,
    is_public_address,
)

PUBLIC = """
    1.1.1.1 8.8.8.8 93.184.216.34 100.63.255.255 100.128.0.0 172.32.0.1 192.0.1.1 198.17.255.255 198.20.0.0
    223.255.255.255 2606:4700::1111 2a00:1450:4001::200e 2620:fe::fe
    ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1
""".split()  # noqa: SIM905  reads better than a list

NOT = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.8.8.8 168.63.129.16
    169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.9 192.0.0.170 192.0.0.192 192.0.2.1
    192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1
    255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 2606:4700::1111%1 fec0::1
    ff02::1 100::1 2001:db8::1 3fff::1 5f00::1 4000::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2
    ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1
    64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8 64:ff9b:1::1
    2002:7f00:1::1 2002:a00:1::1 2002:a9fe:a9fe::1 2002:c0a8:1::1
""".split()  # noqa: SIM905


@pytest.mark.parametrize("text", PUBLIC)
def test_public_address_is_accepted(text: str) -> None:
    assert is_public_address(ip_address(text))


@pytest.mark.parametrize("text", NOT)
def test_non_public_address_is_rejected_in_any_notation(text: str) -> None:
    assert not is_public_address(ip_address(text))


@pytest.mark.parametrize(
    ("entry", "host", "address", "port", "is_covered"),
    [
        ("127.0.0.1:8081", "127.0.0.1", "127.0.0.1", 8081, True),
        ("127.0.0.1:8081", "localhost", "127.0.0.1", 8081, True),
        ("127.0.0.1:8081", "127.0.0.1", "127.0.0.1", 8082, False),
        ("127.0.0.1:8081", "127.0.0.1", "127.0.0.1", 80, False),
        ("127.0.0.1:8081", "127.0.0.1", "::ffff:127.0.0.1", 8081, False),
        ("10.1.0.0/16", "files", "10.1.9.9", 443, True),
        ("10.1.0.0/16", "files", "10.1.9.9", 8080, False),
        ("10.1.0.0/16", "files", "10.2.0.1", 443, False),
        ("10.1.0.0/16:8080", "files", "10.1.9.9", 8080, True),
        ("Files.Internal.", "files.internal", "10.9.9.9", 80, True),
        ("files.internal", "FILES.internal.", "10.9.9.9", 80, True),
        ("files.internal", "my.files.internal", "10.9.9.9", 80, False),
        ("files.internal:8080", "files.internal", "fd00::9", 8080, True),
        ("fd00::/8", "files", "fd00::9", 80, True),
        ("[fd00::/8]:8080", "files", "fd00::9", 8080, True),
        ("[fd00::1]", "files", "fd00::1", 443, True),
        ("::1", "localhost", "::1", 80, True),
        ("::1", "localhost", "127.0.0.1", 80, False),
    ],
)
def test_allowed_host_covers_its_host_or_network_on_its_port(
    entry: str, host: str, address: str, port: int, is_covered: bool
) -> None:
    assert AllowedHost.parse(entry).covers(host, ip_address(address), port) is is_covered


WRONG = ["", ":80", "a b", "10.1.2.3/16", "host:0", "host:65536", "[::1", "http://h", "*", "h:x"]


@pytest.mark.parametrize("entry", WRONG)
def test_allowed_host_with_invalid_syntax_is_rejected(entry: str) -> None:
    with pytest.raises(ValueError, match=r"is not a host or network|invalid port"):
        AllowedHost.parse(entry)


def test_host_with_one_non_public_address_is_refused() -> None:
    addresses = [ip_address(text) for text in ("8.8.8.8", "10.0.0.1", "1.1.1.1")]
    assert explain_refused_host("h", addresses, 443, ()) == NOT_PUBLIC_REASON
    assert explain_refused_host("h", addresses[::2], 443, ()) is None
    assert explain_refused_host("h", addresses, 443, (AllowedHost.parse("10.0.0.0/8"),)) is None


def test_non_web_port_is_refused_unless_allowed() -> None:
    address, entry = ip_address("8.8.8.8"), AllowedHost.parse("h:8443")
    assert (
        explain_refused_host("h", [address], 8443, ()) == explain_refused_port(8443, ()) == "port 8443 is not allowed"
    )
    assert explain_refused_host("other", [address], 8443, (entry,)) is not None
    assert explain_refused_host("h", [address], 8443, (entry,)) is explain_refused_port(8443, (entry,)) is None
