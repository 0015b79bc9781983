"""Commands for the installation: settings, SQL, schema, old rows, invariants, and quarantined broker messages."""

import json
import os
import re
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from tidemill.config import ENV_PREFIX, SERVICE_SECRET_ENV_PREFIX, Settings, load_settings
from tidemill.config_file import find_config_path, find_configured_app_and_source
from tidemill.core.errors import InvalidInput, InvalidSql
from tidemill.dispatch.quarantine import (
    QUARANTINE_MAX_MESSAGES,
    QuarantinedMessage,
    delete_quarantined_messages,
    list_quarantined_messages,
)
from tidemill.jobs import administration
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import run_with_runtime
from tidemill.terminal.command_options import parse_age_seconds
from tidemill.terminal.console import (
    JsonOption,
    console,
    error_console,
    escape_text,
    format_json,
    print_json_lines,
    print_table,
)

commands = typer.Typer()
SQL_ROWS_DEFAULT, SQL_ROWS_MAX = 1_000, 100_000


@commands.command("sql")
def sql_command(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="File with SQL statements; - for stdin")] = None,
    statements: Annotated[
        str | None, typer.Option("--command", "-c", metavar="SQL", help="Run these statements instead of a file")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=SQL_ROWS_MAX, help="Maximum number of rows to print per statement")
    ] = SQL_ROWS_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Run SQL statements on the configured database. Without FILE and -c, open psql.

    All statements run in one transaction: if one fails, none takes effect. The exit code is 1 if a statement fails.
    """
    if file is not None and statements is not None:
        raise InvalidInput("FILE and -c cannot be used together. Use one of them.")
    if file is None and statements is None:
        raise typer.Exit(run_with_runtime(lambda runtime: administration.run_psql(runtime.db), check=False))
    text, name = (statements, "-c") if statements is not None else _read_sql_text_and_name(str(file))
    try:
        run_with_runtime(
            lambda runtime: _run_and_print_sql(runtime, str(text), name, limit, as_json=as_json), check=False
        )
    except InvalidSql as error:
        error_console.print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None


def _read_sql_text_and_name(path: str) -> tuple[str, str]:
    """Return the text of a file or of standard input, and its name in messages."""
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig"), "Standard input"
        return Path(path).read_text("utf-8-sig"), f'"{path}"'
    except OSError as error:
        raise InvalidInput(f'Cannot read "{path}": {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f'"{path}" is not valid UTF-8: {error}') from error


async def _run_and_print_sql(runtime: Runtime, text: str, name: str, limit: int, *, as_json: bool) -> None:
    results = administration.run_user_sql(runtime.db, text, name, row_limit=limit, as_text=not as_json)
    async for result in results:
        if as_json:
            print_json_lines(dict(zip(result.columns, row, strict=True)) for row in result.rows)
        elif result.columns:
            _print_sql_rows(result.columns, result.rows)
        elif result.status:
            console.print(result.status, highlight=False)
        if result.row_count > len(result.rows):
            error_console.print(
                f"Printed the first {len(result.rows):,} of {result.row_count:,} rows. Use --limit to print more.",
                highlight=False,
            )


def _print_sql_rows(columns: list[str], rows: list[list[Any]]) -> None:
    names = [escape_text(name) for name in columns]
    cells = [["" if value is None else escape_text(value) for value in row] for row in rows]
    print_table(names, cells, foldable=names, hide_first=names[:0:-1])
    console.print(f"({len(rows):,} row{'' if len(rows) == 1 else 's'})", highlight=False)


@commands.command("config")
def config_command(as_json: JsonOption = False) -> None:
    """Show every setting, its value and the source of the value. Passwords and secrets are masked."""
    settings = load_settings()
    path, app = find_config_path(settings.config), find_configured_app_and_source(settings)
    values = list_setting_values(settings)
    values = [
        replace(one, value=str(path), source="default: tidemill.toml in the working directory")
        if one.name == "config" and settings.config is None and path is not None
        else replace(one, value=app[0], source=app[1])
        if one.name == "app" and settings.app is None and app is not None
        else one
        for one in values
    ]
    if as_json:
        print_json_lines(map(asdict, values))
        return
    rows = [(one.variable, _format_setting_value(one), escape_text(one.source)) for one in values]
    print_table(("setting", "value", "source"), rows, foldable=("value", "source"))


MASKED_SECRET = "********"  # noqa: S105  it replaces a secret
_URL_PASSWORD_PATTERN = re.compile(r"(://[^:/?#@\s]*):.*@")
_SECRET_PARAMETER_PATTERN = re.compile(
    r"(?i)([\w-]*(?:password|passwd|secret|token|key|sig))(\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]+)"
)


def mask_secrets(text: str) -> str:
    """Replace the passwords and other secrets of a URL or a connection string."""
    masked = _URL_PASSWORD_PATTERN.sub(rf"\1:{MASKED_SECRET}@", text)
    return _SECRET_PARAMETER_PATTERN.sub(rf"\1\2{MASKED_SECRET}", masked)


def _mask_setting(name: str, value: str) -> str:
    """Mask secrets, and all of an invalid URL, because its password cannot be found."""
    if name in ("database_url", "broker") and "://" not in value and "=" not in value:
        return MASKED_SECRET
    return mask_secrets(value)


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting as `tidemill config` shows it: without secrets, and with the source of its value."""

    name: str
    variable: str
    value: Any
    source: str


def list_setting_values(settings: Settings) -> list[SettingValue]:
    """Return all settings, then the secrets of external services, which are only in the environment."""
    environment = {name.upper(): name for name in os.environ}
    shown = settings.model_dump(mode="json")
    values = []
    for name, model_field in Settings.model_fields.items():
        variables = getattr(model_field.validation_alias, "choices", None) or [ENV_PREFIX + name.upper()]
        found = next((environment[one] for one in variables if one in environment), None)
        value = _mask_setting(name, shown[name]) if isinstance(shown[name], str) else shown[name]
        source = "default" if found is None else f"environment variable {found}"
        values.append(SettingValue(name, str(variables[0]), value, source))
    secrets = sorted(name for name in os.environ if name.startswith(SERVICE_SECRET_ENV_PREFIX))
    return values + [
        SettingValue(name.removeprefix(ENV_PREFIX).lower(), name, MASKED_SECRET, f"environment variable {name}")
        for name in secrets
    ]


def _format_setting_value(one: SettingValue) -> str:
    if one.value is None:
        return "[dim]not set[/]"
    return escape_text(one.value if isinstance(one.value, str) else json.dumps(one.value))


@commands.command()
def migrate() -> None:
    """Migrate the database schema to the current version. Several processes may run this at once."""

    async def action(runtime: Runtime) -> list[str]:
        return await administration.migrate_schema(runtime.db)

    for name in run_with_runtime(action, check=False):
        console.print(f"Applied {name}")
    console.print("The schema is up to date")


@commands.command()
def purge(
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Only jobs that closed longer ago than this, such as 90d, 12w or 36h")
    ],
) -> None:
    """Delete the rows of old closed jobs, a complete week at a time. Job counts are kept."""
    seconds = parse_age_seconds(older_than)

    async def action(runtime: Runtime) -> list[str]:
        return await administration.purge_jobs(runtime.db, seconds)

    weeks = run_with_runtime(action)
    console.print(
        f"Dropped {', '.join(weeks)}"
        if weeks
        else "Nothing to drop: no week has only jobs that closed longer ago than --older-than"
    )


@commands.command()
def doctor(as_json: JsonOption = False) -> None:
    """Check the settings, the server and all invariants of the engine. The exit code is 1 if a check fails."""
    findings = run_with_runtime(lambda runtime: administration.check_installation(runtime.db))
    if as_json:
        print_json_lines(
            {
                "check": one.name,
                "status": "ok" if one.ok else ("warning" if one.is_warning else "failed"),
                "details": one.details,
            }
            for one in findings
        )
    for finding in [] if as_json else findings:
        mark = "[green]ok[/]  " if finding.ok else ("[yellow]warn[/]" if finding.is_warning else "[red]BAD[/] ")
        console.print(f"{mark} {finding.name}", highlight=False)
        for line in finding.details:
            console.print(f"       {line}", highlight=False)
    if any(not finding.ok and not finding.is_warning for finding in findings):
        raise typer.Exit(1)


@commands.command()
def quarantine(
    limit: Annotated[
        int, typer.Option(min=1, max=QUARANTINE_MAX_MESSAGES, help="Maximum number of messages to show, newest first")
    ] = 20,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the shown messages and all older ones")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show broker messages that are not valid hints (wake-up messages for workers), and hints the broker rejected."""

    async def action(runtime: Runtime) -> list[QuarantinedMessage]:
        messages = await runtime.db.read(list_quarantined_messages, limit)
        if clear and messages:
            await runtime.db.run(delete_quarantined_messages, messages[0].id)
        return messages

    messages = run_with_runtime(action)
    for one in messages:
        if as_json:
            typer.echo(format_json(asdict(one)))
        else:
            head = f"[bold]{one.id}[/]  {one.at:%Y-%m-%d %H:%M:%S}  {one.source}, {one.size:,} bytes"
            console.print(f"{head}: {escape(one.reason)}", highlight=False, soft_wrap=True)
            console.print(f"    [dim]{escape(one.message)}[/]", highlight=False, soft_wrap=True)
    if not as_json:
        console.print(_format_quarantine_footer(len(messages), cleared=clear and bool(messages)))


def _format_quarantine_footer(shown: int, *, cleared: bool) -> str:
    if cleared:
        return "Deleted these messages and all older ones"
    return f"Newest {shown:,} messages" if shown else "The quarantine is empty"
