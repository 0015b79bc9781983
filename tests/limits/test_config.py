"""Tests of limiter declarations: all problems are reported at startup."""

from pathlib import Path
from typing import Any

import pytest

from tidemill import Item, Mill
from tidemill.app.runtime_factory import load_limiters, make_runtime
from tidemill.config import Settings
from tidemill.core.errors import InvalidInput, InvalidSettings
from tidemill.limits.config import parse_limiters
from tidemill.limits.limiter import Limiter


def test_limiters_are_declared_in_config_file_and_on_mill(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('[limiters.shop]\nrate = "5/s"\nburst = 10\nconcurrency = 4\nlowest = "1/s"\n')
    mill = Mill(settings.model_copy(update={"config": tmp_path / "t.toml"}))
    mill.limiter("geo", "300/min", adaptive=False)
    mill.limiter("sites", delay="2s")
    found = load_limiters(make_runtime(None, mill.settings, mill.registry), mill.registry)
    assert found == {
        "shop": Limiter("shop", 5.0, 10, 4, True, 0.2),
        "geo": Limiter("geo", 5.0, 2, None, False),
        "sites": Limiter("sites", 0.5, 1),
    }


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({}, 'Set at least one of "rate"'),
        ({"rate": "fast"}, 'Input should be a rate, such as "5/s"'),
        ({"rate": "0/s"}, "Rate must be from 1 per day"),
        ({"rate": True}, "Input should be a rate"),
        ({"rate": "5/fortnight"}, "Input should be a rate"),
        ({"rate": 5, "delay": 1}, 'limiters.shop.delay: Conflicts with "rate"'),
        ({"concurrency": 2, "burst": 3}, 'limiters.shop.burst: Requires "rate"'),
        ({"concurrency": 0}, "Input should be an integer from 1"),
        ({"rate": 1, "burst": 1.5}, "Input should be an integer from 1"),
        ({"rate": 1, "lowest": "2/s"}, '"lowest" must not be greater than "rate"'),
        ({"delay": "soon"}, "Input should be a duration"),
        ({"rate": 1, "burts": 2}, 'Unknown key; did you mean "burst"?'),
    ],
)
def test_invalid_limiter_declaration_is_rejected_with_reason(said: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        parse_limiters({"limiters": {"shop": said}})
    assert wrong in str(raised.value)
    assert "limiters.shop" in str(raised.value)


def test_limiter_accepts_no_lowest_rate_of_a_program() -> None:
    explicit, default = ({"limiters": {"shop": {"rate": 1} | more}} for more in ({"lowest": None}, {}))
    assert parse_limiters(explicit) == parse_limiters(default)


def test_handler_with_undeclared_limiter_is_rejected_with_suggestion(mill: Mill) -> None:
    mill.limiter("shop", "5/s")

    @mill.handler("call", limit="shp")
    async def call(item: Item) -> None: ...

    with pytest.raises(InvalidSettings, match='uses limiter "shp", which is not declared; did you mean "shop"'):
        load_limiters(make_runtime(None, mill.settings, mill.registry), mill.registry)


def test_limit_by_without_limiter_is_rejected(mill: Mill) -> None:
    with pytest.raises(InvalidInput, match="limit_by"):
        mill.handler("call", limit_by=lambda item: str(item.input))(lambda item: item)


async def test_mill_limit_outside_worker_is_rejected(mill: Mill) -> None:
    mill.limiter("shop", "5/s")
    with pytest.raises(InvalidInput, match="outside of a worker"):
        async with mill.limit("shop"):
            pass
