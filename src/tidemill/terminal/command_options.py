"""Options that several commands have: parses their values, and finds which were set on the command line."""

import re
from typing import Annotated, Any

import typer

from tidemill.core.errors import InvalidInput

PolicyOption = Annotated[
    str,
    typer.Option(
        help="What failed items do to the job: continue (nothing), fail_fast (the first one fails the job), "
        "tolerate:10 or tolerate:5% (more than 10 items or 5% fail the job)"
    ),
]


def parse_policy_option(text: str) -> dict[str, Any]:
    mode, _, bound = text.partition(":")
    try:
        if bound.endswith("%"):
            return {"mode": mode, "max_percent": float(bound[:-1])}
        return {"mode": mode} | ({"max_failed": int(bound)} if bound else {})
    except ValueError:
        raise InvalidInput(f'Invalid --policy "{text}": the limit must be a number or a percentage') from None


_AGE_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_age_seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip().lower())
    if match is None:
        raise InvalidInput(f'Invalid age "{text}". Use a number and a unit, such as 90d, 12w, 36h, 30m or 10s.')
    return float(match[1]) * _AGE_UNIT_SECONDS[match[2]]


def is_option_on_command_line(ctx: typer.Context, name: str) -> bool:
    """Return whether a parameter has its value from the command line, and not from a default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
