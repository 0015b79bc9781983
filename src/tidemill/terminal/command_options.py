"""Options that several commands have: parses their values, and finds which were set on the command line."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from tidemill.core.errors import InvalidInput

PolicyOption = Annotated[
    str,
    typer.Option(
        help="When failed items fail the job: continue (never), fail_fast (after the first), "
        "tolerate:10 or tolerate:5% (after more than 10 items or 5%)"
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


T = TypeVar("T")
FORMAT_HELP = "csv, tsv, ndjson, json, xlsx or parquet"
_TEXT, _NUMBER, _FLAG = str | None, int | None, bool
_OPTIONS: dict[str, tuple[Any, str, str]] = {
    "format": (_TEXT, "--format", FORMAT_HELP),
    "encoding": (_TEXT, "--encoding", "utf-8, cp1252, … (default: detected)"),
    "compression": (_TEXT, "--compression", "gzip, zstd, zip or none (default: detected)"),
    "delimiter": (_TEXT, "--delimiter", "Delimiter of a CSV file, such as ; or || or blanks (default: detected)"),
    "quote": (_TEXT, "--quote", "Quote character of a CSV file (default: detected)"),
    "escape": (_TEXT, "--escape", "Character that escapes quotes: a backslash (default: detected)"),
    "line_end": (_TEXT, "--line-end", "lf, crlf or cr (default: detected)"),
    "no_header": (_FLAG, "--no-header", "The file has no header. Its columns are named column_1, …"),
    "header_rows": (_NUMBER, "--header-rows", "Number of header rows, whose names are joined (default: detected)"),
    "skip_lines": (_NUMBER, "--skip-lines", "Number of lines before the table (default: detected)"),
    "footer_lines": (_NUMBER, "--footer-lines", "Number of lines after the table (default: detected)"),
    "comment": (_TEXT, "--comment", "Prefix of the lines to ignore (default: detected)"),
    "table": (_NUMBER, "--table", "Which table of a file with several tables, starting at 1"),
    "table_lines": (_NUMBER, "--table-lines", "Number of lines of the table (default: detected)"),
    "trailing_delimiter": (
        bool | None,
        "--trailing-delimiter/--no-trailing-delimiter",
        "Each line ends with an extra delimiter, after the last column (default: detected)",
    ),
    "short_rows": (_TEXT, "--short-rows", "pad fills missing fields; report makes the row invalid (default)"),
    "long_rows": (_TEXT, "--long-rows", "cut drops extra fields; report makes the row invalid (default)"),
    "records": (_TEXT, "--records", "List of rows in a JSON object, such as items or data.items (default: detected)"),
    "flatten": (
        bool | None,
        "--flatten/--no-flatten",
        "Make the fields of nested JSON objects fields of the row, such as address.city (default: no)",
    ),
    "sheet": (_TEXT, "--sheet", "Sheet of a workbook, by name or number"),
}


def add_layout_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options to a command. Its parameter ``layout`` receives the ones that are set, by name.

    A command with its own parameter ``format_`` does not get the option ``--format``.
    """
    plain = inspect.signature(command)
    options = {name: one for name, one in _OPTIONS.items() if f"{name}_" not in plain.parameters}
    added = [
        inspect.Parameter(
            f"layout_{name}",
            inspect.Parameter.KEYWORD_ONLY,
            default=False if kind is _FLAG else None,
            annotation=Annotated[kind, typer.Option(flag, help=text)],
        )
        for name, (kind, flag, text) in options.items()
    ]
    kept = [each for name, each in plain.parameters.items() if name != "layout"]
    shown = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in kept]

    @functools.wraps(command)
    def with_layout(**given: Any) -> T:
        values = {name: given.pop(f"layout_{name}") for name in options}
        if values.pop("no_header"):
            values["header"] = False
        layout = {name: value for name, value in values.items() if value is not None}
        return command(**given, layout=layout)

    annotations = {each.name: each.annotation for each in [*shown, *added]}
    with_layout.__signature__ = plain.replace(parameters=[*shown, *added])  # type: ignore[attr-defined]
    with_layout.__annotations__ = annotations
    return with_layout
