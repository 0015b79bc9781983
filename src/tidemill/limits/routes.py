"""HTTP routes of limiters."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel, Field, StrictFloat

from tidemill.limits import use_cases
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep
from tidemill.rest.schema_types import RequestModel


class LimiterOut(BaseModel):
    """A limiter: a limit on calls that all workers share, and its current usage."""

    name: str
    rate: float | None = Field(description="Maximum calls that start per second; null if the rate is not limited")
    current_rate: float | None = Field(description="The current rate. Each throttled call reduces it")
    burst: int
    concurrency: int | None = Field(description="Maximum concurrent calls; null if concurrency is not limited")
    adaptive: bool = Field(description="Whether throttled calls reduce the rate")
    in_use: int = Field(description="Concurrency slots that worker processes hold now")
    waiting: int = Field(description="Claimed items that wait for the limiter, as last reported by the workers")
    blocked_until: datetime | None = Field(description="Time before which no call starts, because a call was throttled")
    members: int = Field(description="Members that are limited separately, such as domains")
    blocked_members: int
    taken: int = Field(description="Permits granted so far")
    refused: int = Field(description="Throttled calls so far")
    changed: bool = Field(description="Whether an admin changed the limiter since it was declared")
    used_at: datetime


class LimiterIn(RequestModel):
    """The fields to change; other fields keep their values."""

    rate: StrictFloat | str | None = Field(
        None, description='Calls per second as a number, or a string such as `"5/s"` or `"300/min"`'
    )
    burst: int | None = None
    concurrency: int | None = None


class UnblockIn(RequestModel):
    """The member to unblock; by default the limiter and all its members."""

    key: str | None = Field(None, max_length=255)


router = APIRouter(tags=["limiters"], route_class=AuthenticatedRoute)
UNBLOCK_ALL_MEMBERS = UnblockIn()


@router.get("/limiters", **build_route_options(Permission.USER))
async def list_limiters(db: DatabaseDep) -> list[LimiterOut]:
    """List the limiters with their current usage and blocks."""
    return [LimiterOut.model_validate(row) for row in await use_cases.list_limiters(db)]


@router.get("/limiters/{limiter}", **build_route_options(Permission.USER, 404))
async def get_limiter(limiter: str, db: DatabaseDep) -> LimiterOut:
    """Get a limiter with its current usage."""
    return LimiterOut.model_validate(await use_cases.get_limiter(db, limiter))


@router.patch("/limiters/{limiter}", **build_route_options(Permission.ADMIN, 404, 409))
async def change_limiter(limiter: str, body: LimiterIn, me: CurrentUser, db: DatabaseDep) -> LimiterOut:
    """Change a limiter for all workers. The change lasts until the limiter's declaration changes."""
    changed = await use_cases.change_limiter(
        db, limiter, rate=body.rate, burst=body.burst, concurrency=body.concurrency, by=me.name
    )
    return LimiterOut.model_validate(changed)


@router.post("/limiters/{limiter}/unblock", **build_route_options(Permission.ADMIN, 404))
async def unblock_limiter(
    limiter: str, me: CurrentUser, db: DatabaseDep, body: UnblockIn = UNBLOCK_ALL_MEMBERS
) -> LimiterOut:
    """Unblock a limiter that throttled calls have blocked. Calls can start immediately."""
    return LimiterOut.model_validate(await use_cases.unblock_limiter(db, limiter, body.key, by=me.name))
