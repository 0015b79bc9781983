"""Which methods a path has: of several routes to it the router names those of the first one only."""

from fastapi import FastAPI
from starlette.routing import compile_path


def allowed(app: FastAPI, path: str) -> str | None:
    """The value of an Allow header; None for a path that is in no document."""
    paths = app.openapi()["paths"]
    matching = [path] if path in paths else [each for each in paths if compile_path(each)[0].match(path)]
    found = {method.upper() for each in matching for method in paths[each]}
    return ", ".join(sorted(found)) or None
