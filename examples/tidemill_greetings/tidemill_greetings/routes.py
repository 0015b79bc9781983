"""The HTTP route `/v1/greetings/{name}`."""

from fastapi import APIRouter
from pydantic import BaseModel

from tidemill.rest.auth import AuthenticatedRoute, Permission, build_route_options
from tidemill.rest.dependencies import RuntimeDep
from tidemill_greetings import greetings

router = APIRouter(tags=["greetings"], route_class=AuthenticatedRoute)


class GreetingOut(BaseModel):
    """A greeting."""

    greeting: str


@router.get("/greetings/{name}", **build_route_options(Permission.USER, 404))
async def get_greeting(name: str, runtime: RuntimeDep, language: str = "english") -> GreetingOut:
    """Greet one person."""
    return GreetingOut(greeting=greetings.greet(runtime, name, language))
