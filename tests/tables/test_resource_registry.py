"""The resource registry, tested with the resources of the demo."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from support import rows
from tables.introspect import look_at
from tidemill.config_file import load_config_file
from tidemill.core.errors import InvalidInput, InvalidSettings, UnknownResource
from tidemill.core.principal import Role
from tidemill.store.database import Database
from tidemill.tables import resource_registry
from tidemill.tables.config import NAMED_PATTERNS, parse_resource_declarations
from tidemill.tables.resource import ConditionalRequirement, Reference, TableName
from tidemill.tables.resource_registry import ResourceRegistry

DEMO = files("tidemill").joinpath("demo")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "resources.md"
USERS, ARTICLES = TableName("demo", "users"), TableName("demo", "articles")


@pytest.fixture
async def demo(db: Database) -> ResourceRegistry:
    async with db.connection() as conn:
        await conn.execute(DEMO.joinpath("schema.sql").read_bytes())
    return ResourceRegistry(load_config_file(Path(str(DEMO.joinpath("tidemill.toml"))), parse_resource_declarations))


async def test_demo_config_declares_users_articles_and_comments(db: Database, demo: ResourceRegistry) -> None:
    assert await demo.find_declaration_problems(db) == []
    users, articles, comments = [await demo.get_resource(db, name) for name in ("users", "articles", "comments")]
    assert users.field_names == ["id", "email", "name", "role", "active", "created_at", "updated_at"]
    assert (users.key, users.get_field("active").default, users.get_field("id").filled) == (("email",), "true", True)
    assert users.get_field("role").enum == ("admin", "editor", "author", "reader")
    assert [name for name in users.field_names if users.get_field(name).required] == ["email", "name", "role"]
    assert articles.field_names == [
        *["id", "slug", "title", "description", "body", "author_id", "tags", "published_at", "status"],
        *["created_at", "updated_at"],
    ]
    assert articles.conditions == (ConditionalRequirement("status", ("published",), ("published_at",)),)
    assert (articles.key, articles.get_field("tags").element) == (("slug",), "text")
    assert (articles.get_field("status").enum, articles.get_field("status").default) == (
        ("draft", "published", "archived"),
        "draft",
    )
    assert articles.references == (Reference(("author_id",), USERS, ("id",)),)
    assert (comments.field_names, comments.key) == (["id", "body", "article_id", "user_id", "created_at"], ("id",))
    assert comments.get_field("body").max_words == 500
    assert comments.references == (
        Reference(("article_id",), ARTICLES, ("id",)),
        Reference(("user_id",), USERS, ("id",)),
    )
    assert [one.name for one in demo.list_allowed(Role.USER)] == ["users", "articles", "comments"]


async def test_registry_finds_undeclared_table_only_with_any_table(db: Database, demo: ResourceRegistry) -> None:
    with pytest.raises(UnknownResource, match=r'Unknown resource "demo\.users"'):
        await demo.get_resource(db, "demo.users")
    found = await demo.get_resource(db, "demo.users", any_table=True)
    assert (found.name, found.get_field("role").enum, found.read) == ("demo.users", (), (Role.ADMIN,))
    with pytest.raises(UnknownResource):
        await demo.get_resource(db, "demo.users")
    with pytest.raises(InvalidInput, match=r"Did you mean demo\.users"):
        await demo.get_resource(db, "demo.user", any_table=True)


async def test_registry_reintrospects_table_after_invalidation_or_cache_expiry(
    db: Database, demo: ResourceRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await demo.get_resource(db, "users")
    await rows(db, "ALTER TABLE demo.users ADD nick text")
    assert await demo.get_resource(db, "users") is before
    demo.invalidate("users")
    assert "nick" in (await demo.get_resource(db, "users")).field_names
    await rows(db, "ALTER TABLE demo.users DROP nick")
    monkeypatch.setattr(resource_registry, "CATALOG_CACHE_S", 0.0)
    assert await demo.get_resource(db, "users") == before
    await rows(db, "ALTER TABLE demo.users RENAME TO people")
    with pytest.raises(InvalidSettings, match=r'resources\.users\.table: Unknown table "demo\.users"'):
        await demo.get_resource(db, "users")
    assert len(await demo.find_declaration_problems(db)) == 1


def test_registry_lists_only_resources_granted_to_role() -> None:
    declared = parse_resource_declarations({"resources": {"a": {"table": "a"}, "b": {"table": "b", "write": ["user"]}}})
    assert [one.name for one in ResourceRegistry(declared).list_allowed(Role.USER)] == ["b"]
    assert [one.name for one in ResourceRegistry(declared).list_allowed(Role.ADMIN)] == ["a", "b"]


async def test_resource_example_in_docs_matches_table(db: Database) -> None:
    example = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    declared = ResourceRegistry(parse_resource_declarations(tomllib.loads(example)))
    await look_at(
        db,
        "articles",
        "CREATE TABLE users (email text UNIQUE, phone text, date_of_birth date, country text, team_id integer)",
        "CREATE TABLE articles (slug text UNIQUE, title text, body text, status text, published_at date, rest text)",
    )
    assert await declared.find_declaration_problems(db) == []
    assert (await declared.get_resource(db, "users")).get_field("born").minimum == "1900-01-01"
    assert "rest" not in (await declared.get_resource(db, "articles")).field_names


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("email", "a@b.de a.b+c@x-y.co.uk müller@straße.de o'x@a.museum", "a a@b @b.de a@b..de a@@b.de a@b.d"),
        ("slug", "a my-first-article 2026-11", "A a--b -a a- a_b"),
        ("url", "http://a https://a.de/b?c#d", "ftp://a https:// https:///x a.de"),
    ],
)
def test_builtin_format_accepts_valid_and_rejects_invalid_values(name: str, good: str, bad: str) -> None:
    matches = re.compile(NAMED_PATTERNS[name][0]).fullmatch
    assert [value for value in good.split() if not matches(value)] == []
    assert [
        value for value in ["", *bad.split(), f"{good.split(maxsplit=1)[0]}\n", f"{good} x"] if matches(value)
    ] == []
    assert not matches("a" * 100_000 + "@" + "a." * 100_000), "and soon"
