"""Limiters: how often others may be called."""

from fastapi import APIRouter

from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.schemas.limiters import LimiterIn, LimiterOut, UnblockIn
from tidemill.api.state import Db
from tidemill.operations import limiters

router = APIRouter(tags=["limiters"], route_class=Guarded)
WHOLE = UnblockIn()


@router.get("/limiters", **allow(Permission.USER))
async def list_limiters(db: Db) -> list[LimiterOut]:
    """What is limited, what it is at, and how long it is blocked."""
    return [LimiterOut.model_validate(row) for row in await limiters.list_limiters(db)]


@router.get("/limiters/{limiter}", **allow(Permission.USER, 404))
async def get_limiter(limiter: str, db: Db) -> LimiterOut:
    """One of them."""
    return LimiterOut.model_validate(await limiters.get_limiter(db, limiter))


@router.patch("/limiters/{limiter}", **allow(Permission.ADMIN, 404, 409))
async def change_limiter(limiter: str, asked: LimiterIn, me: Me, db: Db) -> LimiterOut:
    """Change it for everybody, at once and until it is declared anew."""
    changed = await limiters.change_limiter(
        db, limiter, rate=asked.rate, burst=asked.burst, concurrency=asked.concurrency, by=me.name
    )
    return LimiterOut.model_validate(changed)


@router.post("/limiters/{limiter}/unblock", **allow(Permission.ADMIN, 404))
async def unblock_limiter(limiter: str, me: Me, db: Db, asked: UnblockIn = WHOLE) -> LimiterOut:
    """Lift a block: calls begin again, though somebody refused."""
    return LimiterOut.model_validate(await limiters.unblock_limiter(db, limiter, asked.key, by=me.name))
