"""The statements of queries/, each read once."""

from functools import cache
from importlib.resources import files


@cache
def sql(name: str) -> bytes:
    """The statement in ``queries/<name>.sql``."""
    return files("tidemill.store").joinpath("queries", f"{name}.sql").read_bytes()
