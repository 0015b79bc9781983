"""Which broker, and whether its library is there."""

import random
import sys

import pytest

from tidemill.config import load_settings
from tidemill.dispatch.taskiq import LONGEST_S, broker_of, line_maker, pause_after
from tidemill.domain.errors import InvalidSettings


@pytest.mark.parametrize("url", ["kafka://localhost", "localhost:6379", "http://redis", "redis:localhost"])
def test_an_address_of_no_broker_stops_the_start(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_BROKER", url)
    with pytest.raises(InvalidSettings, match="TIDEMILL_BROKER: a broker's address begins with one of redis://"):
        load_settings()


def test_an_empty_address_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_BROKER", "")
    assert load_settings().broker is None


@pytest.mark.parametrize(
    ("url", "name"),
    [("redis://h", "redis"), ("rediss://h", "redis"), ("amqp://h", "rabbitmq"), ("amqps://h/v", "rabbitmq")],
)
def test_the_scheme_names_the_broker(url: str, name: str) -> None:
    assert broker_of(url) == name


@pytest.mark.parametrize(("url", "module"), [("redis://h", "redis"), ("amqp://h", "rabbitmq")])
def test_without_the_extra_the_start_says_what_to_install(
    url: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"tidemill.dispatch.{module}", raising=False)
    for name in ("taskiq", "taskiq_redis", "taskiq_aio_pika"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidSettings, match=r"pip install 'tidemill\[brokers\]'"):
        line_maker(url, "space", ["test"], "w1")


def test_pauses_grow_to_a_bound_and_are_not_the_same_for_everybody() -> None:
    random.seed(7)
    early, late = [pause_after(0) for _ in range(100)], [pause_after(50) for _ in range(100)]
    assert max(early) <= 0.2 < LONGEST_S / 2 <= min(late) < max(late) <= LONGEST_S
    assert len(set(late)) > 90
