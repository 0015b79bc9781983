"""People look at limiters, change them and lift their blocks."""

import pytest
from typer.testing import CliRunner

from support import rows
from tidemill.api import service
from tidemill.cli.main import app
from tidemill.config import Settings
from tidemill.domain.errors import Conflict, InvalidInput, Unknown
from tidemill.domain.limits import Limiter
from tidemill.operations.limiters import change_limiter, get_limiter, list_limiters, unblock_limiter
from tidemill.store import limiters as store
from tidemill.store.database import Database

SHOP = Limiter("shop", 5.0, 10)


@pytest.fixture(autouse=True)
async def declared(db: Database) -> None:
    await db.run(store.declare, [SHOP, Limiter("places", concurrency=3)])


async def test_what_limiters_are_at_is_listed(db: Database) -> None:
    await db.run(store.add_member, "shop", "a.example")
    await db.run(store.refuse, "shop", "a.example", after=60, age=0, times=2)
    await db.run(store.refuse, "shop", "", after=60, age=0, times=1)
    places, shop = await list_limiters(db)
    assert (places["name"], places["rate"], places["concurrency"], places["in_use"]) == ("places", None, 3, 0)
    assert (shop["rate"], shop["current_rate"], shop["refused"]) == (5.0, 2.5, 1)
    assert (shop["members"], shop["blocked_members"], shop["changed"]) == (1, 1, False)
    assert shop["blocked_until"] is not None


async def test_a_change_holds_for_everybody_until_the_limiter_is_declared_anew(db: Database) -> None:
    await db.run(store.add_member, "shop", "a.example")
    changed = await change_limiter(db, "shop", rate="2/s", burst=3)
    assert (changed["rate"], changed["burst"], changed["changed"]) == (2.0, 3, True)
    assert await rows(db, "SELECT rate FROM tidemill.limiter WHERE key = 'a.example'") == [(2.0,)]
    await db.run(store.declare, [SHOP])  # a worker that starts again with what it had
    assert (await get_limiter(db, "shop"))["rate"] == 2.0
    await db.run(store.declare, [Limiter("shop", 7.0, 10)])
    assert (await get_limiter(db, "shop"))["rate"] == 7.0


async def test_a_block_is_lifted_of_one_member_or_of_all(db: Database) -> None:
    for key in ("a.example", "b.example"):
        await db.run(store.add_member, "shop", key)
        await db.run(store.refuse, "shop", key, after=60, age=0, times=1)
    assert (await unblock_limiter(db, "shop", "a.example"))["blocked_members"] == 1
    assert (await unblock_limiter(db, "shop"))["blocked_members"] == 0


async def test_what_cannot_be_changed_is_told(db: Database) -> None:
    with pytest.raises(Unknown, match="there is no limiter 'shp'"):
        await change_limiter(db, "shp", rate=1)
    with pytest.raises(InvalidInput, match="a rate is wanted"):
        await change_limiter(db, "shop", rate="quick")
    with pytest.raises(InvalidInput, match="say what to change"):
        await change_limiter(db, "shop")
    with pytest.raises(Conflict, match="has no rate"):
        await change_limiter(db, "places", rate=1)


async def test_the_api_shows_them(db: Database, settings: Settings) -> None:
    assert {"/v1/limiters", "/v1/limiters/{limiter}", "/v1/limiters/{limiter}/unblock"} <= set(
        service.create(db, settings).openapi()["paths"]
    )


def test_the_command_shows_and_changes_them(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", str(settings.database_url))
    shown = CliRunner().invoke(app, ["limiters", "shop", "--rate", "2/s"])
    assert shown.exit_code == 0, shown.output
    assert "changed" in shown.output
    assert CliRunner().invoke(app, ["limiters", "--unblock"]).exit_code == 2
