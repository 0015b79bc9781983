"""Commands about users and their keys. They need the credentials of the database."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.accounts import use_cases as accounts
from tidemill.config import load_settings
from tidemill.core.principal import Role
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import run_with_runtime
from tidemill.terminal.console import console, error_console, parse_age_seconds

commands = typer.Typer()
users_commands = typer.Typer(no_args_is_help=True)
keys_commands = typer.Typer(no_args_is_help=True)
commands.add_typer(users_commands, name="users", help="Who may use the service.")
commands.add_typer(keys_commands, name="keys", help="The API keys they use it with.")
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="A user's name or id")]


@users_commands.command("list")
def list_users() -> None:
    """List the users and how many good keys they have."""

    async def action(runtime: Runtime) -> Sequence[object]:
        return await accounts.list_users(runtime.db)

    _print_table(("id", "name", "role", "keys", "created_at"), run_with_runtime(action))


@users_commands.command("add")
def add_user(
    name: Annotated[str, typer.Argument(help="What the user is called")],
    admin: Annotated[bool, typer.Option("--admin", help="May see and do everything")] = False,
) -> None:
    """Add a user, and make a first key, which is shown this once."""

    async def action(runtime: Runtime) -> str:
        user = await accounts.add_user(runtime.db, name, Role.ADMIN if admin else Role.USER)
        return (await accounts.add_key(runtime.db, user.name))[0]

    _print_new_key(run_with_runtime(action))


@users_commands.command("role")
def change_role(user: UserArgument, role: Annotated[Role, typer.Argument(help="The new one")]) -> None:
    """Make a user an admin, or a plain user again. Signed-in browsers have to sign in anew."""

    async def action(runtime: Runtime) -> None:
        await accounts.change_role(runtime.db, user, role)

    run_with_runtime(action)
    console.print(f"{escape(user)} is {role.value} now", highlight=False)


@users_commands.command("remove")
def remove_user(user: UserArgument) -> None:
    """Remove a user with keys and sessions; their jobs stay, for admins."""

    async def action(runtime: Runtime) -> None:
        await accounts.remove_user(runtime.db, user)

    run_with_runtime(action)
    console.print(f"{escape(user)} removed", highlight=False)


@users_commands.command("link")
def create_link_command(
    user: Annotated[str, typer.Argument(metavar="USER", help="A user's name or id")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Where browsers find the service, as in https://mill.example.org")
    ] = None,
) -> None:
    """Make a link that signs a browser in once, within a quarter of an hour."""
    settings = load_settings()
    base = (address or f"http://{settings.http_host}:{settings.http_port}").rstrip("/")

    async def action(runtime: Runtime) -> str:
        return base + await accounts.create_sign_in_link(runtime.db, user)

    console.print(run_with_runtime(action), highlight=False, soft_wrap=True)


@keys_commands.command("list")
def list_keys(
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="A user's name or id; everybody, without it")
    ] = None,
) -> None:
    """List keys by their prefixes; the keys themselves are not kept."""

    async def action(runtime: Runtime) -> Sequence[object]:
        return await accounts.list_keys(runtime.db, user)

    columns = ("prefix", "user_name", "name", "created_at", "expires_at", "last_used_at", "revoked_at")
    _print_table(columns, run_with_runtime(action))


@keys_commands.command("add")
def add_key(
    user: UserArgument,
    name: Annotated[str, typer.Option(help="What it is for")] = "",
    expires: Annotated[str | None, typer.Option(metavar="AGE", help="As in 90d; never, without it")] = None,
) -> None:
    """Make a key; it is shown this once."""
    seconds = None if expires is None else parse_age_seconds(expires)

    async def action(runtime: Runtime) -> str:
        return (await accounts.add_key(runtime.db, user, name=name, expires_in_s=seconds))[0]

    _print_new_key(run_with_runtime(action))


@keys_commands.command("revoke")
def revoke_key(prefix: Annotated[str, typer.Argument(help="As in tm_1a2b3c4d")]) -> None:
    """Make a key useless, at once and for ever."""

    async def action(runtime: Runtime) -> None:
        await accounts.revoke_key(runtime.db, prefix)

    run_with_runtime(action)
    console.print(f"{escape(prefix)} revoked", highlight=False)


def _print_new_key(key: str) -> None:
    console.print(key, highlight=False, soft_wrap=True)
    error_console.print("Keep it: it is not shown again.")


def _print_table(columns: tuple[str, ...], rows: Sequence[object]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.removesuffix("_at").replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_format_table_cell(getattr(row, name)) for name in columns))
    console.print(table)


def _format_table_cell(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    return "" if value is None else escape(str(value))
