"""Which methods a path has: of several routes to it the router names those of the first one only."""

from fastapi import FastAPI
from starlette.routing import compile_path


def allowed(app: FastAPI, path: str) -> str | None:
    """The value of an Allow header; None for a path that is in no document."""
    found = {
        method.upper()
        for template, methods in app.openapi()["paths"].items()
        if compile_path(template)[0].match(path)
        for method in methods
    }
    return ", ".join(sorted(found)) or None
