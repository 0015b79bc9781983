"""Tests of listing, changing and unblocking limiters."""

import pytest
from typer.testing import CliRunner

from support import rows
from tidemill.app.runtime_factory import make_runtime
from tidemill.cli.main import app
from tidemill.config import Settings
from tidemill.core.errors import Conflict, InvalidInput, UnknownEntity
from tidemill.http import application
from tidemill.limits import limiter_records as store
from tidemill.limits.limiter import Limiter
from tidemill.limits.use_cases import change_limiter, get_limiter, list_limiters, unblock_limiter
from tidemill.store.database import Database

SHOP = Limiter("shop", 5.0, 10)


@pytest.fixture(autouse=True)
async def declared(db: Database) -> None:
    await db.run(store.declare_limiters, [SHOP, Limiter("places", concurrency=3)])


async def test_list_limiters_shows_rate_slots_blocks_and_members(db: Database) -> None:
    await db.run(store.add_limiter_member, "shop", "a.example")
    await db.run(store.block_throttled_limiter, "shop", "a.example", after=60, age=0, times=2)
    await db.run(store.block_throttled_limiter, "shop", "", after=60, age=0, times=1)
    places, shop = await list_limiters(db)
    assert (places["name"], places["rate"], places["concurrency"], places["in_use"]) == ("places", None, 3, 0)
    assert (shop["rate"], shop["current_rate"], shop["refused"]) == (5.0, 2.5, 1)
    assert (shop["members"], shop["blocked_members"], shop["changed"]) == (1, 1, False)
    assert shop["blocked_until"] is not None


async def test_limiter_change_applies_until_declaration_changes(db: Database) -> None:
    await db.run(store.add_limiter_member, "shop", "a.example")
    changed = await change_limiter(db, "shop", rate="2/s", burst=3)
    assert (changed["rate"], changed["burst"], changed["changed"]) == (2.0, 3, True)
    assert await rows(db, "SELECT rate FROM tidemill.limiter WHERE key = 'a.example'") == [(2.0,)]
    await db.run(store.declare_limiters, [SHOP])  # a worker that restarts with the same declaration
    assert (await get_limiter(db, "shop"))["rate"] == 2.0
    await db.run(store.declare_limiters, [Limiter("shop", 7.0, 10)])
    assert (await get_limiter(db, "shop"))["rate"] == 7.0


async def test_unblock_limiter_applies_to_one_member_or_all(db: Database) -> None:
    for key in ("a.example", "b.example"):
        await db.run(store.add_limiter_member, "shop", key)
        await db.run(store.block_throttled_limiter, "shop", key, after=60, age=0, times=1)
    assert (await unblock_limiter(db, "shop", "a.example"))["blocked_members"] == 1
    assert (await unblock_limiter(db, "shop"))["blocked_members"] == 0


async def test_invalid_limiter_change_is_rejected_with_reason(db: Database) -> None:
    with pytest.raises(UnknownEntity, match='Unknown limiter "shp"'):
        await change_limiter(db, "shp", rate=1)
    with pytest.raises(InvalidInput, match="Input should be a rate"):
        await change_limiter(db, "shop", rate="quick")
    with pytest.raises(InvalidInput, match="Nothing to change"):
        await change_limiter(db, "shop")
    with pytest.raises(Conflict, match="has no rate"):
        await change_limiter(db, "places", rate=1)


async def test_api_has_limiter_routes(db: Database, settings: Settings) -> None:
    assert {"/v1/limiters", "/v1/limiters/{limiter}", "/v1/limiters/{limiter}/unblock"} <= set(
        application.create_api(make_runtime(db, settings)).openapi()["paths"]
    )


def test_limiters_command_changes_limiter_and_rejects_bare_unblock(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", str(settings.database_url))
    shown = CliRunner().invoke(app, ["limiters", "shop", "--rate", "2/s"])
    assert shown.exit_code == 0, shown.output
    assert "changed" in shown.output
    assert CliRunner().invoke(app, ["limiters", "--unblock"]).exit_code == 2


def test_limiters_command_shows_rates_with_three_digits(
    monkeypatch: pytest.MonkeyPatch, tidemill_database: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", tidemill_database)
    shown = [CliRunner().invoke(app, ["limiters", "shop", "--rate", rate]).stdout for rate in ("1000/min", "1200/s")]
    assert ["16.7" in shown[0], "16.66" in shown[0], "1,200" in shown[1]] == [True, False, True]
