"""HTTP routes of limiters."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, Field, StrictFloat

from tidemill.limits import use_cases
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.runtime_dependencies import DatabaseDep
from tidemill.rest.schema_types import RequestModel


def _reject_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is wanted")  # noqa: TRY004  pydantic reports a ValueError
    return value


IntNotBool = Annotated[int, BeforeValidator(_reject_bool)]


class LimiterOut(BaseModel):
    """How often, and how many at a time, everybody together may call somebody; and what it is at."""

    name: str
    rate: float | None = Field(description="Starts a second; none if they are not counted")
    current_rate: float | None = Field(description="The same, as refusals have left it")
    burst: int
    concurrency: int | None = Field(description="At a time; none if they are not counted")
    adaptive: bool = Field(description="Whether refusals slow it down")
    in_use: int = Field(description="Places that processes have now")
    waiting: int = Field(description="Items in hand of workers that wait for it, as last heard")
    blocked_until: datetime | None = Field(description="Nobody begins before: whoever is called said so")
    members: int = Field(description="Domains, or whatever it counts each by itself")
    blocked_members: int
    taken: int = Field(description="Permits so far")
    refused: int = Field(description="Refusals so far")
    changed: bool = Field(description="An admin changed it since it was declared")
    used_at: datetime


class LimiterIn(RequestModel):
    """What to change; the rest stays."""

    rate: StrictFloat | str | None = Field(None, description='As in `"5/s"`, `"300/min"`, or a number a second')
    burst: IntNotBool | None = None
    concurrency: IntNotBool | None = None


class UnblockIn(RequestModel):
    """Of which member; without it, the limiter and all of them."""

    key: str | None = Field(None, max_length=255)


router = APIRouter(tags=["limiters"], route_class=AuthenticatedRoute)
UNBLOCK_ALL_MEMBERS = UnblockIn()


@router.get("/limiters", **build_route_options(Permission.USER))
async def list_limiters(db: DatabaseDep) -> list[LimiterOut]:
    """What is limited, what it is at, and how long it is blocked."""
    return [LimiterOut.model_validate(row) for row in await use_cases.list_limiters(db)]


@router.get("/limiters/{limiter}", **build_route_options(Permission.USER, 404))
async def get_limiter(limiter: str, db: DatabaseDep) -> LimiterOut:
    """One of them."""
    return LimiterOut.model_validate(await use_cases.get_limiter(db, limiter))


@router.patch("/limiters/{limiter}", **build_route_options(Permission.ADMIN, 404, 409))
async def change_limiter(limiter: str, body: LimiterIn, me: CurrentUser, db: DatabaseDep) -> LimiterOut:
    """Change it for everybody, at once and until it is declared anew."""
    changed = await use_cases.change_limiter(
        db, limiter, rate=body.rate, burst=body.burst, concurrency=body.concurrency, by=me.name
    )
    return LimiterOut.model_validate(changed)


@router.post("/limiters/{limiter}/unblock", **build_route_options(Permission.ADMIN, 404))
async def unblock_limiter(
    limiter: str, me: CurrentUser, db: DatabaseDep, body: UnblockIn = UNBLOCK_ALL_MEMBERS
) -> LimiterOut:
    """Lift a block: calls begin again, though somebody refused."""
    return LimiterOut.model_validate(await use_cases.unblock_limiter(db, limiter, body.key, by=me.name))
