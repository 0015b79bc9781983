"""Tests of the broker settings."""

import random
import sys

import pytest

from tidemill.config import load_settings
from tidemill.core.errors import InvalidSettings
from tidemill.dispatch.dispatchers import (
    MAX_RECONNECT_DELAY_S,
    compute_reconnect_delay,
    make_connection_factory,
    parse_broker_name,
)


@pytest.mark.parametrize("url", ["kafka://localhost", "localhost:6379", "http://redis", "redis:localhost"])
def test_broker_setting_with_unknown_scheme_is_rejected(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_BROKER", url)
    with pytest.raises(InvalidSettings, match="TIDEMILL_BROKER: must start with one of redis://"):
        load_settings()


def test_empty_broker_setting_means_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_BROKER", "")
    assert load_settings().broker is None


@pytest.mark.parametrize(
    ("url", "name"),
    [("redis://h", "redis"), ("rediss://h", "redis"), ("amqp://h", "rabbitmq"), ("amqps://h/v", "rabbitmq")],
)
def test_broker_is_detected_from_url_scheme(url: str, name: str) -> None:
    assert parse_broker_name(url) == name


@pytest.mark.parametrize(("url", "module"), [("redis://h", "redis"), ("amqp://h", "rabbitmq")])
def test_missing_broker_library_error_names_package_to_install(
    url: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"tidemill.dispatch.{module}_connection", raising=False)
    for name in ("taskiq", "taskiq_redis", "taskiq_aio_pika"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidSettings, match=r"pip install 'tidemill\[brokers\]'"):
        make_connection_factory(url, "space", ["test"], "w1")


def test_reconnect_delay_grows_to_maximum_with_jitter() -> None:
    random.seed(7)
    early, late = [compute_reconnect_delay(0) for _ in range(100)], [compute_reconnect_delay(50) for _ in range(100)]
    assert max(early) <= 0.2 < MAX_RECONNECT_DELAY_S / 2 <= min(late) < max(late) <= MAX_RECONNECT_DELAY_S
    assert len(set(late)) > 90
