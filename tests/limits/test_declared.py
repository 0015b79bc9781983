"""Limiters as people declare them: what is wrong is told, all of it, before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from tidemill import Item, Mill
from tidemill.app.wiring import make_limiters
from tidemill.config import Settings
from tidemill.domain.errors import InvalidInput, InvalidSettings
from tidemill.domain.limits import Limiter, limiters


def test_a_file_and_a_mill_declare_limiters(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('[limiters.shop]\nrate = "5/s"\nburst = 10\nconcurrency = 4\nlowest = "1/s"\n')
    mill = Mill(settings.model_copy(update={"config": tmp_path / "t.toml"}))
    mill.limiter("geo", "300/min", adaptive=False)
    mill.limiter("sites", delay="2s")
    found = make_limiters(mill.settings, mill.registry)
    assert found == {
        "shop": Limiter("shop", 5.0, 10, 4, True, 0.2),
        "geo": Limiter("geo", 5.0, 2, None, False),
        "sites": Limiter("sites", 0.5, 1),
    }


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({}, "it limits nothing"),
        ({"rate": "fast"}, 'a rate is wanted, such as "5/s"'),
        ({"rate": "0/s"}, "a rate is from one a day"),
        ({"rate": True}, "a rate is wanted"),
        ({"rate": "5/fortnight"}, "a rate is wanted"),
        ({"rate": 5, "delay": 1}, "there is a rate already"),
        ({"concurrency": 2, "burst": 3}, "a burst goes with a rate"),
        ({"concurrency": 0}, "a whole number from 1"),
        ({"rate": 1, "burst": 1.5}, "a whole number from 1"),
        ({"rate": 1, "lowest": "2/s"}, "it is above the rate"),
        ({"delay": "soon"}, "a time is wanted"),
        ({"rate": 1, "burts": 2}, "unknown key; did you mean burst?"),
    ],
)
def test_what_cannot_be_is_told(said: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        limiters({"limiters": {"shop": said}})
    assert wrong in str(raised.value)
    assert "limiters.shop" in str(raised.value)


def test_a_limiter_that_nobody_declared_stops_the_start(mill: Mill) -> None:
    mill.limiter("shop", "5/s")

    @mill.handler("call", limit="shp")
    async def call(item: Item) -> None: ...

    with pytest.raises(InvalidSettings, match="kind 'call' has limit='shp', which is not declared; did you mean shop"):
        make_limiters(mill.settings, mill.registry)


def test_a_member_needs_a_limiter(mill: Mill) -> None:
    with pytest.raises(InvalidInput, match="limit_by"):
        mill.handler("call", limit_by=lambda item: str(item.input))(lambda item: item)


async def test_a_limiter_is_asked_inside_a_worker_only(mill: Mill) -> None:
    mill.limiter("shop", "5/s")
    with pytest.raises(InvalidInput, match="outside of a worker"):
        async with mill.limit("shop"):
            pass
