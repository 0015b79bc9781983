"""Commands about users and their keys, for whoever has the database's credentials."""

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemill.app import run_in
from tidemill.cli.admin import parse_age
from tidemill.cli.views import console, errors
from tidemill.config import load_settings
from tidemill.domain.identity import Role
from tidemill.store import sessions
from tidemill.store import users as store
from tidemill.store.database import Database

users = typer.Typer(no_args_is_help=True)
keys = typer.Typer(no_args_is_help=True)
LINK_S = 900.0
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="A user's name or id")]


@users.command("list")
def list_users() -> None:
    """List the users and how many good keys they have."""
    found = run_in(load_settings(), lambda db: db.run(store.list_users))
    _show(("id", "name", "role", "keys", "created_at"), found)


@users.command("add")
def add_user(
    name: Annotated[str, typer.Argument(help="What the user is called")],
    admin: Annotated[bool, typer.Option("--admin", help="May see and do everything")] = False,
) -> None:
    """Add a user, and make a first key, which is shown this once."""

    async def action(db: Database) -> str:
        user = await db.run(store.add, name, Role.ADMIN if admin else Role.USER)
        return (await db.run(store.add_key, user.id))[0]

    _show_key(run_in(load_settings(), action))


@users.command("role")
def change_role(user: UserArgument, role: Annotated[Role, typer.Argument(help="The new one")]) -> None:
    """Make a user an admin, or a plain user again. Signed-in browsers have to sign in anew."""

    async def action(db: Database) -> None:
        await db.run(store.set_role, await db.run(store.find, user), role)

    run_in(load_settings(), action)
    console.print(f"{escape(user)} is {role.value} now", highlight=False)


@users.command("remove")
def remove_user(user: UserArgument) -> None:
    """Remove a user with keys and sessions; their jobs stay, for admins."""

    async def action(db: Database) -> None:
        await db.run(store.remove, await db.run(store.find, user))

    run_in(load_settings(), action)
    console.print(f"{escape(user)} removed", highlight=False)


@users.command("link")
def link(
    user: Annotated[str, typer.Argument(metavar="USER", help="A user's name or id")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Where browsers find the service, as in https://mill.example.org")
    ] = None,
) -> None:
    """Make a link that signs a browser in once, within a quarter of an hour."""
    settings = load_settings()
    base = (address or f"http://{settings.http_host}:{settings.http_port}").rstrip("/")

    async def action(db: Database) -> str:
        return await sign_in_link(db, user, base)

    console.print(run_in(settings, action), highlight=False, soft_wrap=True)


@keys.command("list")
def list_keys(
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="A user's name or id; everybody, without it")
    ] = None,
) -> None:
    """List keys by their prefixes; the keys themselves are not kept."""

    async def action(db: Database) -> list[dict[str, Any]]:
        user_id = None if user is None else (await db.run(store.find, user)).id
        return await db.run(store.list_keys, user_id)

    columns = ("prefix", "user_name", "name", "created_at", "expires_at", "last_used_at", "revoked_at")
    _show(columns, run_in(load_settings(), action))


@keys.command("add")
def add_key(
    user: UserArgument,
    name: Annotated[str, typer.Option(help="What it is for")] = "",
    expires: Annotated[str | None, typer.Option(metavar="AGE", help="As in 90d; never, without it")] = None,
) -> None:
    """Make a key; it is shown this once."""
    seconds = None if expires is None else parse_age(expires)

    async def action(db: Database) -> str:
        found = await db.run(store.find, user)
        return (await db.run(store.add_key, found.id, name=name, seconds=seconds))[0]

    _show_key(run_in(load_settings(), action))


@keys.command("revoke")
def revoke_key(prefix: Annotated[str, typer.Argument(help="As in tm_1a2b3c4d")]) -> None:
    """Make a key useless, at once and for ever."""
    run_in(load_settings(), lambda db: db.run(store.revoke_key, prefix, None))
    console.print(f"{escape(prefix)} revoked", highlight=False)


async def sign_in_link(db: Database, user: str, address: str) -> str:
    found = await db.run(store.find, user)
    return f"{address}/sign-in/{await db.run(sessions.make_link, found.id, LINK_S)}"


def _show_key(key: str) -> None:
    console.print(key, highlight=False, soft_wrap=True)
    errors.print("Keep it: it is not shown again.")


def _show(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.removesuffix("_at").replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_text(row[name]) for name in columns))
    console.print(table)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    return "" if value is None else escape(str(value))
