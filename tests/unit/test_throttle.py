"""What counts as "you ask too much", in the words of the libraries that people use."""

import email.message
import urllib.error
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.decide import from_exception
from tidemill.domain.outcome import Retry
from tidemill.domain.throttle import is_throttle, retry_after, status_of

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
    """As the clients of single services have it."""

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
def test_a_refusal_is_known_in_every_library(status: int) -> None:
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
        assert is_throttle(error), error
        said = from_exception(error)
        assert isinstance(said, Retry)
        assert said.throttled
        assert said.code == "throttled"


@pytest.mark.parametrize("status", [200, 400, 404, 500, 502, 504])
def test_other_answers_are_ordinary_errors(status: int) -> None:
    error = of_httpx(status)
    assert status_of(error) == status
    assert not is_throttle(error)
    said = from_exception(error)
    assert isinstance(said, Retry)
    assert not said.throttled


def test_exceptions_of_other_kinds_are_none_of_ours() -> None:
    for error in (
        ValueError("429"),
        LikeRequests("429"),
        LikeRequests(Answer("429")),
        OSError(429, "x"),
        SystemExit(429),
    ):
        assert not is_throttle(error), error
        assert retry_after(error) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.25"}, 0.25),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": HALF_A_MINUTE_LATER, "date": DATE}, 30.0),
        ({"retry_after": DATE, "date": HALF_A_MINUTE_LATER}, 0.0),
        ({"retry_after": HALF_A_MINUTE_LATER}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({}, None),
    ],
)
def test_the_answer_says_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(of_httpx(429, **headers)) == seconds
    assert retry_after(of_urllib(429, **headers)) == seconds


def test_headers_may_be_a_plain_dict_in_either_case() -> None:
    assert retry_after(LikeAiohttp(429, {"Retry-After": "2"})) == 2
    assert retry_after(LikeAiohttp(429, {"retry-after": "2"})) == 2
    assert retry_after(LikeRequests(Answer(429, {"Retry-After": "3"}))) == 3


class Thorny(Exception):
    """Everything that is looked at raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_an_exception_that_cannot_be_looked_at_is_an_ordinary_one() -> None:
    assert not is_throttle(Thorny())
    assert retry_after(Thorny()) is None
    assert not is_throttle(LikeRequests(Thorny()))


@given(st.one_of(st.none(), st.integers(), st.text(), st.booleans()), st.one_of(st.none(), st.text(), st.integers()))
def test_whatever_an_exception_carries_it_is_looked_at_without_harm(status: object, headers: object) -> None:
    error = LikeRequests(Answer(status, {"Retry-After": headers}))
    assert is_throttle(error) == (status in (429, 503))
    wait = retry_after(error)
    assert wait is None or wait >= 0
