"""FastAPI dependencies that provide routes with the runtime and the database."""

from typing import Annotated, cast

from fastapi import Depends, Request

from tidemill.runtime import Runtime
from tidemill.store.database import Database


def get_runtime(request: Request) -> Runtime:
    return cast("Runtime", request.app.state.runtime)


async def _provide_runtime(
    request: Request,
) -> Runtime:  # async, because FastAPI calls sync functions in a thread, which takes 0.3 ms
    return get_runtime(request)


async def _provide_database(request: Request) -> Database:
    return get_runtime(request).db


RuntimeDep = Annotated[Runtime, Depends(_provide_runtime)]
DatabaseDep = Annotated[Database, Depends(_provide_database)]
