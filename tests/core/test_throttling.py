"""Tests of throttling detection for the exceptions of common HTTP clients."""

import email.message
import email.utils
import time
import urllib.error
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.decide import outcome_from_exception
from tidemill.core.outcome import Retry
from tidemill.core.throttling import extract_http_status, extract_retry_after_s, is_throttling_error

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
HALF_A_MINUTE_LATER = "Wed, 21 Oct 2026 07:28:30 GMT"


def of_httpx(status: int, **headers: str) -> Exception:
    request = httpx2.Request("GET", "http://localhost/")
    response = httpx2.Response(status, headers={name.replace("_", "-"): v for name, v in headers.items()})
    return httpx2.HTTPStatusError("no", request=request, response=response)


def of_urllib(status: int, **headers: str) -> Exception:
    message = email.message.Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return urllib.error.HTTPError("http://localhost/", status, "no", message, None)


@dataclass
class LikeAiohttp(Exception):
    """As aiohttp's ClientResponseError: status and headers on the exception itself."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class LikeAServiceClient(Exception):
    """As clients of single services raise it."""

    status_code: int


class Answer:
    def __init__(self, status_code: object, headers: object = None) -> None:
        self.status_code = status_code
        self.headers = headers


class LikeRequests(Exception):
    def __init__(self, response: object) -> None:
        super().__init__("no")
        self.response = response


@pytest.mark.parametrize("status", [429, 503])
def test_throttling_response_is_detected_in_exceptions_of_every_library(status: int) -> None:
    wrapped = ValueError("no price")
    wrapped.__cause__ = of_httpx(status)
    for error in (
        of_httpx(status),
        of_urllib(status),
        LikeAiohttp(status),
        LikeAServiceClient(status),
        LikeRequests(Answer(status)),
        wrapped,
    ):
        assert is_throttling_error(error), error
        said = outcome_from_exception(error)
        assert isinstance(said, Retry)
        assert said.throttled
        assert said.code == "throttled"


@pytest.mark.parametrize("status", [200, 400, 404, 500, 502, 504])
def test_other_http_statuses_are_not_throttling(status: int) -> None:
    error = of_httpx(status)
    assert extract_http_status(error) == status
    assert not is_throttling_error(error)
    said = outcome_from_exception(error)
    assert isinstance(said, Retry)
    assert not said.throttled


def test_exceptions_without_http_status_are_not_throttling() -> None:
    for error in (
        ValueError("429"),
        LikeRequests("429"),
        LikeRequests(Answer("429")),
        OSError(429, "x"),
        SystemExit(429),
    ):
        assert not is_throttling_error(error), error
        assert extract_retry_after_s(error) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.25"}, 0.25),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": HALF_A_MINUTE_LATER, "date": DATE}, 30.0),
        ({"retry_after": DATE, "date": HALF_A_MINUTE_LATER}, 0.0),
        ({"retry_after": HALF_A_MINUTE_LATER}, 0.0),  # without a Date header, compared with now
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after_header_is_parsed_as_seconds_or_date(headers: dict[str, str], seconds: float | None) -> None:
    assert extract_retry_after_s(of_httpx(429, **headers)) == seconds
    assert extract_retry_after_s(of_urllib(429, **headers)) == seconds


def test_retry_after_date_without_date_header_is_compared_with_the_clock() -> None:
    in_an_hour = email.utils.formatdate(time.time() + 3600, usegmt=True)  # noqa: TID251  a header's date
    seconds = extract_retry_after_s(of_httpx(429, retry_after=in_an_hour))
    assert seconds is not None
    assert 3590 < seconds <= 3600


def test_retry_after_is_read_from_plain_dict_in_any_case() -> None:
    assert extract_retry_after_s(LikeAiohttp(429, {"Retry-After": "2"})) == 2
    assert extract_retry_after_s(LikeAiohttp(429, {"retry-after": "2"})) == 2
    assert extract_retry_after_s(LikeRequests(Answer(429, {"Retry-After": "3"}))) == 3


class Thorny(Exception):
    """An exception whose attributes raise."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_exception_with_raising_attributes_is_not_throttling() -> None:
    assert not is_throttling_error(Thorny())
    assert extract_retry_after_s(Thorny()) is None
    assert not is_throttling_error(LikeRequests(Thorny()))


@given(st.one_of(st.none(), st.integers(), st.text(), st.booleans()), st.one_of(st.none(), st.text(), st.integers()))
def test_throttling_detection_accepts_any_status_and_header_value(status: object, headers: object) -> None:
    error = LikeRequests(Answer(status, {"Retry-After": headers}))
    assert is_throttling_error(error) == (status in (429, 503))
    wait = extract_retry_after_s(error)
    assert wait is None or wait >= 0
