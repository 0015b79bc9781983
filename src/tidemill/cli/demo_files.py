"""Files for the demo: people, what they wrote and what others said of it, one row in a hundred bad."""

import csv
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

BAD_EVERY = 100
ROLES, STATUSES = ("admin", "editor", "author", "reader"), ("draft", "published", "archived")
WORDS = (
    "pond",
    "fills",
    "with",
    "the",
    "tide",
    "and",
    "wheel",
    "turns",
    "from",
    "stored",
    "water",
    "at",
    "its",
    "pace",
)
BAD_USERS = ({"email": "ann at example.com"}, {"role": "king"}, {"name": ""}, {"created_at": "yesterday"})
BAD_ARTICLES = (
    {"slug": "Not A Slug"},
    {"status": "published", "published_at": None},
    {"author_id": str(UUID(int=1))},
    {"title": "t" * 300},
)
BAD_COMMENTS = ({"body": "word " * 501}, {"article_id": "?"}, {"user_id": str(UUID(int=1))}, {"body": " "})


def make_files(folder: Path, n: int) -> list[Path]:
    """The three of them, in the order in which they refer to each other; the same ones every time."""
    users, articles, comments = folder / "users.csv", folder / "articles.ndjson", folder / "comments.ndjson"
    with users.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "email", "name", "role", "active", "created_at"])
        writer.writeheader()
        writer.writerows(_users(n))
    for path, rows in ((articles, _articles(n)), (comments, _comments(n))):
        with path.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return [users, articles, comments]


def _users(n: int) -> Iterator[dict[str, Any]]:
    for i in range(n):
        row = {"id": _id(1, i), "email": f"user{i}@example.com", "name": f"User {i}", "role": ROLES[i % 4]}
        row |= {"active": str(i % 3 > 0).lower(), "created_at": f"2026-01-{i % 28 + 1:02}T10:00:00Z"}
        yield row | (BAD_USERS[i // BAD_EVERY % 4] if _is_bad(i) else {})


def _articles(n: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(1)  # noqa: S311  the same rows every time
    for i in range(n):
        row: dict[str, Any] = {
            "id": _id(2, i),
            "slug": f"article-{i}",
            "title": f"Article {i}",
            "body": _words(rng, 40),
        }
        row |= {"author_id": _author(rng, n), "tags": ["tide", f"no-{i % 9}"], "status": STATUSES[i % 3]}
        row["published_at"] = f"2026-02-{i % 28 + 1:02}T09:30:00Z"
        yield row | (BAD_ARTICLES[i // BAD_EVERY % 4] if _is_bad(i) else {})


def _comments(n: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(2)  # noqa: S311
    for i in range(n):
        article = _id(2, _good(rng.randrange(n)))
        row = {"id": _id(3, i), "body": _words(rng, 12), "article_id": article, "user_id": _author(rng, n)}
        yield row | (BAD_COMMENTS[i // BAD_EVERY % 4] if _is_bad(i) else {})


def _is_bad(i: int) -> bool:
    return i % BAD_EVERY == 7  # noqa: PLR2004


def _author(rng: random.Random, n: int) -> str:
    return _id(1, _good(rng.randrange(n)))


def _good(i: int) -> int:
    """A row that is not bad, so that nobody refers to one that is not there."""
    return i - 1 if _is_bad(i) else i


def _id(table: int, number: int) -> str:
    return str(UUID(int=(table << 96) + (number << 32) + 7))


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))
