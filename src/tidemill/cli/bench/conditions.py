"""Under which conditions it was measured."""

import os
import platform
from importlib.metadata import version
from typing import Any


def versions(server: dict[str, str]) -> dict[str, str]:
    """Of everything that decides the numbers; takes the server's out of its settings."""
    return {
        "tidemill": version("tidemill"),
        "python": platform.python_version(),
        "postgresql": server.pop("server_version"),
        "psycopg": version("psycopg"),
    }


def machine(*, is_own: bool) -> dict[str, Any]:
    return {
        "database": "embedded, its own" if is_own else "DATABASE_URL",
        "cpus": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
