"""Resources by name; the demo's own are the worked example."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from catalog.looks import look_at
from support import rows
from tidemill.declared import load
from tidemill.domain.declaration import declarations
from tidemill.domain.declaration.formats import FORMATS
from tidemill.domain.errors import InvalidInput, InvalidSettings, UnknownResource
from tidemill.domain.identity import Role
from tidemill.domain.resource import Condition, Reference, Table
from tidemill.operations import resources
from tidemill.operations.resources import Resources
from tidemill.store.database import Database

DEMO = files("tidemill").joinpath("demo")
PAGE = Path(__file__).parents[2] / "docs" / "resources.md"
USERS, ARTICLES = Table("demo", "users"), Table("demo", "articles")


@pytest.fixture
async def demo(db: Database) -> Resources:
    async with db.connection() as conn:
        await conn.execute(DEMO.joinpath("schema.sql").read_bytes())
    return Resources(load(Path(str(DEMO.joinpath("tidemill.toml")))))


async def test_the_demo_is_users_articles_and_comments(db: Database, demo: Resources) -> None:
    assert await demo.problems(db) == []
    users, articles, comments = [await demo.find(db, name) for name in ("users", "articles", "comments")]
    assert users.names == ["id", "email", "name", "role", "active", "created_at", "updated_at"]
    assert (users.key, users.field("active").default, users.field("id").filled) == (("email",), "true", True)
    assert users.field("role").enum == ("admin", "editor", "author", "reader")
    assert [name for name in users.names if users.field(name).required] == ["email", "name", "role"]
    assert articles.names == [
        *["id", "slug", "title", "description", "body", "author_id", "tags", "published_at", "status"],
        *["created_at", "updated_at"],
    ]
    assert articles.conditions == (Condition("status", ("published",), ("published_at",)),)
    assert (articles.key, articles.field("tags").element) == (("slug",), "text")
    assert (articles.field("status").enum, articles.field("status").default) == (
        ("draft", "published", "archived"),
        "draft",
    )
    assert articles.references == (Reference(("author_id",), USERS, ("id",)),)
    assert (comments.names, comments.key) == (["id", "body", "article_id", "user_id", "created_at"], ("id",))
    assert comments.field("body").max_words == 500
    assert comments.references == (
        Reference(("article_id",), ARTICLES, ("id",)),
        Reference(("user_id",), USERS, ("id",)),
    )
    assert [one.name for one in demo.list(Role.USER)] == ["users", "articles", "comments"]


async def test_only_declared_resources_are_found_unless_any_table_may(db: Database, demo: Resources) -> None:
    with pytest.raises(UnknownResource, match=r"there is no resource 'demo\.users'"):
        await demo.find(db, "demo.users")
    found = await demo.find(db, "demo.users", any_table=True)
    assert (found.name, found.field("role").enum, found.read) == ("demo.users", (), (Role.ADMIN,))
    with pytest.raises(UnknownResource):
        await demo.find(db, "demo.users")
    with pytest.raises(InvalidInput, match=r"did you mean demo\.users"):
        await demo.find(db, "demo.user", any_table=True)


async def test_the_catalog_is_asked_again_after_a_moment(
    db: Database, demo: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await demo.find(db, "users")
    await rows(db, "ALTER TABLE demo.users ADD nick text")
    assert await demo.find(db, "users") is before
    demo.forget("users")
    assert "nick" in (await demo.find(db, "users")).names
    await rows(db, "ALTER TABLE demo.users DROP nick")
    monkeypatch.setattr(resources, "FRESH_S", 0.0)
    assert await demo.find(db, "users") == before
    await rows(db, "ALTER TABLE demo.users RENAME TO people")
    with pytest.raises(InvalidSettings, match=r"resources\.users\.table: there is no table 'demo\.users'"):
        await demo.find(db, "users")
    assert len(await demo.problems(db)) == 1


def test_who_has_no_grant_does_not_see_a_resource() -> None:
    declared = declarations({"resources": {"a": {"table": "a"}, "b": {"table": "b", "write": ["user"]}}})
    assert [one.name for one in Resources(declared).list(Role.USER)] == ["b"]
    assert [one.name for one in Resources(declared).list(Role.ADMIN)] == ["a", "b"]


async def test_the_example_in_the_docs_fits_a_table(db: Database) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    declared = Resources(declarations(tomllib.loads(example)))
    await look_at(
        db,
        "articles",
        "CREATE TABLE users (email text UNIQUE, phone text, date_of_birth date, country text, team_id integer)",
        "CREATE TABLE articles (slug text UNIQUE, title text, body text, status text, published_at date, rest text)",
    )
    assert await declared.problems(db) == []
    assert (await declared.find(db, "users")).field("born").minimum == "1900-01-01"
    assert "rest" not in (await declared.find(db, "articles")).names


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("email", "a@b.de a.b+c@x-y.co.uk müller@straße.de o'x@a.museum", "a a@b @b.de a@b..de a@@b.de a@b.d"),
        ("slug", "a my-first-article 2026-11", "A a--b -a a- a_b"),
        ("url", "http://a https://a.de/b?c#d", "ftp://a https:// https:///x a.de"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    matches = re.compile(FORMATS[name][0]).fullmatch
    assert [value for value in good.split() if not matches(value)] == []
    assert [
        value for value in ["", *bad.split(), f"{good.split(maxsplit=1)[0]}\n", f"{good} x"] if matches(value)
    ] == []
    assert not matches("a" * 100_000 + "@" + "a." * 100_000), "and soon"
