"""URLs, hosts and headers of other servers: none reaches a private address, and none causes an unexpected error."""

import math
import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import httpx2
from hypothesis import strategies as st

from fuzz.mutations import mutated_text
from fuzz.reading import assert_safe, run_or_reject
from fuzz.targets import fuzz
from tidemill.core.allowed_hosts import AllowedHost, explain_refused_host, is_public_address, parse_ip_literal
from tidemill.core.blob_location import parse_blob_location
from tidemill.core.errors import InvalidInput
from tidemill.core.throttling import extract_retry_after_s
from tidemill.enrichment.external_service import check_service_url
from tidemill.files.remote.checked_connection import (
    URL_FILE_NAME_MAX_CHARS,
    derive_file_name,
    get_url_host,
    parse_allowed_url,
    remove_url_query,
    resolve_redirect_url,
)
from tidemill.files.remote.partial_download import (
    check_content_encoding,
    choose_http_validator,
    parse_content_length,
    parse_content_range,
    parse_retry_after,
)
from tidemill.watches.file_names import FilePattern, find_name_problem, make_printable_path
from tidemill.watches.watch import get_source_key, parse_source_address

HOSTS = (
    *("127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:7f00:1::]", "169.254.169.254", "0x7f.1"),
    *(
        "127.1",
        "2130706433",
        "localhost",
        "LOCALHOST.",
        "10.0.0.1",
        "[fe80::1%25eth0]",
        "8.8.8.8",
        "example.com",
        "é.x",
    ),
)
URLS = tuple(
    f"{scheme}://{host}{rest}" for scheme in ("http", "https") for host in HOSTS for rest in ("/a.csv", ":80/", ":22")
)
URL_FRAGMENTS = [
    *"@:/\\#?%[]",
    "//",
    "..",
    "%2e",
    "%00",
    "user:pw@",
    "\t",
    "\n",
    "\u3002",
    "\uff0f",
    "\u00ad",
    "xn--",
    "0",
    "::",
]


@fuzz(examples=150, url=mutated_text(URLS, fragments=URL_FRAGMENTS) | st.sampled_from(URLS))
def test_accepted_url_has_no_private_literal_address_and_no_secret(url: str) -> None:
    link = run_or_reject(lambda: parse_allowed_url(url), InvalidInput)
    if link is None:
        return
    assert link.scheme in ("http", "https")
    assert not link.userinfo
    address = parse_ip_literal(get_url_host(link))
    assert address is None or is_public_address(address), url
    assert (link.port or 80) in (80, 443)
    assert str(parse_allowed_url(str(link))) == str(link), "a stored URL is accepted again"
    assert "?" not in remove_url_query(link)
    name = derive_file_name(link)
    assert name is None or (len(name) <= URL_FILE_NAME_MAX_CHARS and "/" not in name and "\x00" not in name)


@fuzz(location=mutated_text([*URLS, "/next", "//other.example/x", "?q", "http:x", ""], fragments=URL_FRAGMENTS))
def test_any_redirect_is_checked_like_a_url(location: str) -> None:
    start = parse_allowed_url("https://example.com/rows.csv")
    target = run_or_reject(lambda: resolve_redirect_url(start, location, ()), InvalidInput)
    if target is not None:
        assert target.scheme == "https"
        assert str(parse_allowed_url(target)) == str(target)


PRIVATE_V4 = st.sampled_from(
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.9", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1"]
)
EMBEDDINGS = st.sampled_from(["::ffff:{}", "64:ff9b::{}", "2002:{hex}::", "::{}", "fe80::{}", "2001::{}", "fc00::{}"])


@fuzz(address=PRIVATE_V4, embedding=EMBEDDINGS)
def test_private_address_is_not_public_in_any_notation(address: str, embedding: str) -> None:
    number = int(IPv4Address(address))
    text = embedding.format(address, hex=f"{number >> 16:x}:{number & 0xFFFF:x}")
    assert not is_public_address(ip_address(address))
    assert not is_public_address(ip_address(text)), text


@fuzz(examples=100, number=st.integers(0, 2**128 - 1), v4=st.integers(0, 2**32 - 1))
def test_public_address_is_global_unicast(number: int, v4: int) -> None:
    six, four = IPv6Address(number), IPv4Address(v4)
    assert not is_public_address(six) or six.is_global
    assert not is_public_address(four) or (four.is_global and not four.is_multicast and not four.is_reserved)


ENTRIES = ("files.example:8080", "10.1.0.0/16", "127.0.0.1:8081", "[fd00::/8]:8080", "::1", "a_b.c", "[::1]")


@fuzz(
    entry=mutated_text(ENTRIES, fragments=[":", "/", "[", "]", ".", "65536", "0", "-", "*", "@", "٣"]),
    host=st.sampled_from(["files.example", "x", "10.1.2.3"]),
)
def test_allowed_host_covers_only_what_it_names(entry: str, host: str) -> None:
    found = run_or_reject(lambda: AllowedHost.parse(entry[:100]), ValueError)
    if found is None:
        return
    assert (found.host is None) != (found.network is None)
    assert found.port is None or 0 < found.port < 65_536
    address = ip_address("10.1.2.3")
    if found.covers(host, address, found.port or 80):
        assert found.host == host or (found.network is not None and address in found.network)
        assert explain_refused_host(host, [address], found.port or 80, [found]) is None


ADDRESSES = (
    "inbox/daily",
    "sftp://ada@files.example/out",
    "ftp://h:2121//a",
    "s3://bucket/p",
    "https://h/a.csv?token=x",
    "file:///a",
)


@fuzz(
    examples=60, text=mutated_text(ADDRESSES, fragments=[*URL_FRAGMENTS, "ada:pw@", "..", " "]), is_index=st.booleans()
)
def test_any_source_address_is_parsed_or_rejected_without_its_secret(text: str, is_index: bool) -> None:
    secret = text.replace("://", "://ada:s3cr3t@", 1)
    for given in (text, [text], secret):
        try:
            address = parse_source_address(given, is_index=is_index)
        except InvalidInput as error:
            assert_safe(error)
            assert "s3cr3t" not in str(error)
        else:
            assert "s3cr3t" not in get_source_key(address) or "@" not in secret.partition("://")[2].partition("/")[0]
    run_or_reject(lambda: check_service_url(text), ValueError)
    run_or_reject(lambda: parse_blob_location(text), InvalidInput)


DATES = (
    "Wed, 18 Nov 2026 20:00:00 GMT",
    "Wed, 18 Nov 2026 20:00:00 -0000",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "120",
    "1.5",
    "0",
)
HEADER_VALUES = mutated_text(
    [*DATES, "bytes 0-4/10", '"etag"', 'W/"etag"', "gzip", "attachment; filename*=utf-8''a%00b.csv"],
    fragments=["-", "+9999", "99999999999", "nan", "inf", "1e999", "\x00", "9999", "%ff", ";", '"'],
)
NAMES = ("retry-after", "date", "last-modified", "content-length", "content-range", "content-encoding", "etag")


@fuzz(examples=100, values=st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, HEADER_VALUES)))
def test_any_header_of_a_server_is_parsed_or_rejected(values: dict[str, str]) -> None:
    headers = httpx2.Headers([(name.encode(), value.encode("utf-8", "replace")) for name, value in values.items()])
    wait = parse_retry_after(headers)
    assert wait is None or (wait >= 0 and math.isfinite(wait))
    run_or_reject(lambda: parse_content_length(headers), InvalidInput)
    run_or_reject(lambda: check_content_encoding(headers), InvalidInput)
    parse_content_range(headers)
    choose_http_validator(headers)
    derive_file_name(httpx2.URL("https://h/x"), headers.get("etag"))


class Throttled(Exception):
    """An error as HTTP clients raise it."""

    def __init__(self, headers: Any) -> None:
        super().__init__("429")
        self.headers = headers


@fuzz(examples=60, after=HEADER_VALUES | st.integers() | st.none(), date=HEADER_VALUES)
def test_any_retry_after_of_an_error_is_a_finite_wait_or_none(after: Any, date: str) -> None:
    wait = extract_retry_after_s(Throttled({"Retry-After": after, "Date": date}))
    assert wait is None or (wait >= 0 and math.isfinite(wait))


PATHS = st.text("ab/.*?[]!-\\é\udc80\x00 ~", max_size=12)


@fuzz(glob=PATHS, path=PATHS)
def test_any_file_name_is_matched_and_printed(glob: str, path: str) -> None:
    shown = make_printable_path(path)
    assert find_name_problem(shown) is None
    try:
        pattern = FilePattern((glob,))
    except re.error:
        return
    pattern.matches(path)
    pattern.can_overlap(FilePattern(("*.csv",)), path)
