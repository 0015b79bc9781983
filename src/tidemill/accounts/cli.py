"""Commands for users and API keys. They connect directly to the database."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.markup import escape

from tidemill.accounts import use_cases as accounts
from tidemill.config import load_settings
from tidemill.core.errors import InvalidInput
from tidemill.core.principal import Role
from tidemill.core.quotas import QUOTA_LIMIT_MAX, QUOTA_NAMES, Quota, QuotaUse
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import run_with_runtime
from tidemill.terminal.command_options import parse_age_seconds
from tidemill.terminal.console import JsonOption, console, error_console, print_json_lines, print_table

commands = typer.Typer()
users_commands = typer.Typer(no_args_is_help=True)
keys_commands = typer.Typer(no_args_is_help=True)
commands.add_typer(users_commands, name="users", help="Manage users.")
commands.add_typer(keys_commands, name="keys", help="Manage API keys.")
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="A user's name or id")]


@users_commands.command("list")
def list_users(as_json: JsonOption = False) -> None:
    """List users, with the number of valid API keys of each user."""

    async def action(runtime: Runtime) -> Sequence[object]:
        return await accounts.list_users(runtime.db)

    _print_rows(("id", "name", "role", "keys", "created_at"), run_with_runtime(action), as_json=as_json)


@users_commands.command("add")
def add_user(
    name: Annotated[str, typer.Argument(help="The name of the user")],
    admin: Annotated[bool, typer.Option("--admin", help="Give the user the admin role")] = False,
) -> None:
    """Add a user and create an API key for the user. The key is shown only once."""

    async def action(runtime: Runtime) -> str:
        user = await accounts.add_user(runtime.db, name, Role.ADMIN if admin else Role.USER)
        return (await accounts.add_key(runtime.db, user.name))[0]

    _print_new_key(run_with_runtime(action))


@users_commands.command("role")
def change_role(user: UserArgument, role: Annotated[Role, typer.Argument(help="The new role")]) -> None:
    """Change a user's role. The user's browser sessions end."""

    async def action(runtime: Runtime) -> None:
        await accounts.change_role(runtime.db, user, role)

    run_with_runtime(action)
    console.print(f"Changed the role of {escape(user)} to {role.value}", highlight=False)


LimitOption = Annotated[str | None, typer.Option(metavar="N", help='A number, "unlimited" or "default"')]


@users_commands.command("quota")
def show_or_change_quota(
    user: UserArgument,
    open_jobs: LimitOption = None,
    open_rows: LimitOption = None,
    stored_bytes: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the quotas of a user and how much of them is used. The options change them."""
    given = {"open_jobs": open_jobs, "open_rows": open_rows, "stored_bytes": stored_bytes}
    changes = {name: _parse_limit(name, text) for name, text in given.items() if text is not None}

    async def action(runtime: Runtime) -> tuple[Quota, QuotaUse]:
        return await accounts.change_quota(runtime, user, changes)

    quota, use = run_with_runtime(action)
    limits, used = asdict(quota), asdict(use)
    if as_json:
        print_json_lines({"name": name, "used": used[name], "limit": limits[name]} for name in QUOTA_NAMES)
        return
    rows = [[name, f"{used[name]:,}", "unlimited" if limits[name] is None else f"{limits[name]:,}"] for name in limits]
    print_table(["quota", "used", "limit"], rows)


def _parse_limit(name: str, text: str) -> accounts.QuotaChange:
    if text in ("unlimited", "default"):
        return "unlimited" if text == "unlimited" else "default"
    if not text.isdecimal() or not 0 < int(text) <= QUOTA_LIMIT_MAX:
        raise InvalidInput(f'--{name.replace("_", "-")}: "{text}" must be a number, "unlimited" or "default"')
    return int(text)


@users_commands.command("remove")
def remove_user(user: UserArgument) -> None:
    """Remove a user, with the user's API keys and sessions. Admins still see the user's jobs."""

    async def action(runtime: Runtime) -> None:
        await accounts.remove_user(runtime.db, user)

    run_with_runtime(action)
    console.print(f"Removed {escape(user)}", highlight=False)


@users_commands.command("link")
def create_sign_in_link_command(
    user: Annotated[str, typer.Argument(metavar="USER", help="A user's name or id")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Base URL of the service, such as https://mill.example.org")
    ] = None,
) -> None:
    """Create a sign-in link. It works once and expires after 15 minutes."""
    settings = load_settings()
    base = (address or f"http://{settings.http_host}:{settings.http_port}").rstrip("/")

    async def action(runtime: Runtime) -> str:
        return base + await accounts.create_sign_in_link(runtime.db, user)

    console.print(run_with_runtime(action), highlight=False, soft_wrap=True)


@keys_commands.command("list")
def list_keys(
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="A user's name or id; all users if omitted")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List API keys by prefix. The keys themselves are not stored."""

    async def action(runtime: Runtime) -> Sequence[object]:
        return await accounts.list_keys(runtime.db, user)

    columns = ("prefix", "user_name", "name", "created_at", "expires_at", "last_used_at", "revoked_at")
    _print_rows(columns, run_with_runtime(action), as_json=as_json)


@keys_commands.command("add")
def add_key(
    user: UserArgument,
    name: Annotated[str, typer.Option(help="A name for the key")] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="AGE", help="Lifetime of the key, such as 90d; unlimited if omitted")
    ] = None,
) -> None:
    """Create an API key. It is shown only once."""
    seconds = None if expires is None else parse_age_seconds(expires)

    async def action(runtime: Runtime) -> str:
        return (await accounts.add_key(runtime.db, user, name=name, expires_in_s=seconds))[0]

    _print_new_key(run_with_runtime(action))


@keys_commands.command("revoke")
def revoke_key(prefix: Annotated[str, typer.Argument(help="Prefix of the key, such as tm_1a2b3c4d")]) -> None:
    """Revoke an API key immediately and permanently."""

    async def action(runtime: Runtime) -> None:
        await accounts.revoke_key(runtime.db, prefix)

    run_with_runtime(action)
    console.print(f"Revoked {escape(prefix)}", highlight=False)


def _print_new_key(key: str) -> None:
    console.print(key, highlight=False, soft_wrap=True)
    error_console.print("Store this key now. It is not shown again.")


def _print_rows(columns: tuple[str, ...], rows: Sequence[object], *, as_json: bool) -> None:
    if as_json:
        print_json_lines({name: getattr(row, name) for name in columns} for row in rows)
        return
    print_table(
        [name.removesuffix("_at").replace("_", " ") for name in columns],
        [[_format_table_cell(getattr(row, name)) for name in columns] for row in rows],
        foldable=("name", "user name"),
        hide_first=[name for name in ("created", "last used", "expires") if f"{name.replace(' ', '_')}_at" in columns],
    )


def _format_table_cell(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    return "" if value is None else escape(str(value))
