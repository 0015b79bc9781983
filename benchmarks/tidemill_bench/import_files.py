"""Write the files of the import benchmark, and their good rows for a bare COPY, before the measurement starts."""

import csv
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import UUID

BENCH_BAD_ROW_EVERY = 100  # one bad row per 100 rows
AUTHOR_COUNT = 10_000
BENCH_USER_ROLES = ("admin", "editor", "author", "reader")
USER_COLUMNS = ("id", "email", "name", "role", "active", "created_at", "updated_at")
SAMPLE_READ_CHUNK_BYTES = 256 * 1024
ARTICLE_BODY = "A tide mill lets the pond fill first and then turns its wheel from stored water. " * 4


@dataclass(frozen=True, slots=True)
class ImportSample:
    """A file to import, its number of bad rows, and its good rows in the format of a bare COPY."""

    file: Path
    clean: Path
    rows: int
    bad: int

    def read_clean_chunks(self) -> Iterator[bytes]:
        with self.clean.open("rb") as file:
            while piece := file.read(SAMPLE_READ_CHUNK_BYTES):
                yield piece


def write_users_file(
    folder: Path,
    n: int,
    *,
    is_bad: Callable[[int], bool] = lambda i: i % BENCH_BAD_ROW_EVERY == 7,  # noqa: PLR2004
) -> ImportSample:
    rng = random.Random(n)
    name = f"users-{n}-{is_bad(0)}"
    sample = ImportSample(folder / f"{name}.csv", folder / f"{name}.clean", n, sum(map(is_bad, range(n))))
    with sample.file.open("w") as file, sample.clean.open("w") as clean:
        file.write(",".join(USER_COLUMNS) + "\n")
        for i in range(n):
            row = _make_user_row(rng, i)
            if is_bad(i):
                row[1 + i // BENCH_BAD_ROW_EVERY % 3] = (f"user {i} at home", "", "king")[i // BENCH_BAD_ROW_EVERY % 3]
            else:
                clean.write(",".join(row) + "\n")
            file.write(",".join(row) + "\n")
    return sample


def write_articles_file(folder: Path, n: int) -> ImportSample:
    rng = random.Random(n)
    bad = len(range(7, n, BENCH_BAD_ROW_EVERY))
    sample = ImportSample(folder / f"articles-{n}.ndjson", folder / f"articles-{n}.clean", n, bad)
    with sample.file.open("w") as file, sample.clean.open("w", newline="") as clean:
        writer = csv.writer(clean)
        for i in range(n):
            row = _make_article_row(rng, i)
            if i % BENCH_BAD_ROW_EVERY == 7:  # noqa: PLR2004
                row |= ({"author_id": str(UUID(int=i))}, {"slug": "not a slug"}, {"title": ""})[
                    i // BENCH_BAD_ROW_EVERY % 3
                ]
            else:
                writer.writerow(
                    [*list(row.values())[:5], "{" + ",".join(row["tags"]) + "}", row["status"], row["published_at"]]
                )
            _write_json_line(file, row)
    return sample


def write_payments_file(folder: Path, n: int, *, is_plain: bool) -> ImportSample:
    """Write payments in plain notation, or as a German spreadsheet writes them: 1.234,50, € 1,50, 31.12.2024, ja."""
    rng = random.Random(n)
    file = folder / f"payments-{n}-{is_plain}.csv"
    with file.open("w") as out:
        out.write("id;customer;amount;fee;due;paid\n")
        for i in range(n):
            amount, fee = f"{rng.randrange(10**8) / 100:,.2f}", f"{rng.randrange(10**4) / 100:.2f}"
            year, month, day, paid = 2000 + i % 25, i % 12 + 1, i % 28 + 1, i % 3 > 0
            if is_plain:
                values = [amount.replace(",", ""), fee, f"{year}-{month:02}-{day:02}", "true" if paid else "false"]
            else:
                swapped = amount.translate({44: ".", 46: ","})
                values = [
                    swapped,
                    "€ " + fee.replace(".", ","),
                    f"{day:02}.{month:02}.{year}",
                    "ja" if paid else "nein",
                ]
            out.write(f"{i};Customer {i};{';'.join(values)}\n")
    return ImportSample(file, file, n, 0)


def write_references_file(folder: Path, n: int, *, has_keys: bool) -> ImportSample:
    """Write articles that name their author by id, or by e-mail address."""
    rng = random.Random(n)
    file = folder / f"references-{n}-{has_keys}.csv"
    with file.open("w") as out:
        out.write(f"slug,title,body,{'author_id' if has_keys else 'author'}\n")
        for i in range(n):
            author = rng.randrange(AUTHOR_COUNT)
            name = make_author_id(author) if has_keys else f"author{author}@example.org"
            out.write(f"article-{i},Article {i},{ARTICLE_BODY},{name}\n")
    return ImportSample(file, file, n, 0)


def make_author_id(number: int) -> str:
    return str(UUID(int=(number << 64) + 1))


def make_author_rows() -> bytes:
    """Return the users that articles refer to, in the format of a bare COPY."""
    rows = [
        f"{make_author_id(i)},author{i}@example.org,Author {i},author,true,2024-01-01Z,2024-01-01Z"
        for i in range(AUTHOR_COUNT)
    ]
    return ("\n".join(rows) + "\n").encode()


def _make_user_row(rng: random.Random, i: int) -> list[str]:
    moment = f"2024-{i % 12 + 1:02}-{i % 28 + 1:02}T{i % 24:02}:30:45Z"
    email = f"user{rng.randrange(10**9)}.{i}@example.com"
    active = "true" if i % 3 else "false"
    return [
        str(UUID(int=rng.getrandbits(128))),
        email,
        f"User Number {i}",
        BENCH_USER_ROLES[i % 4],
        active,
        moment,
        moment,
    ]


def _make_article_row(rng: random.Random, i: int) -> dict[str, Any]:
    return {
        "id": str(UUID(int=rng.getrandbits(128))),
        "slug": f"article-{rng.randrange(10**9)}-{i}",
        "title": f"Article {i}",
        "body": ARTICLE_BODY,
        "author_id": make_author_id(rng.randrange(AUTHOR_COUNT)),
        "tags": ["tide", f"mill{i % 10}"],
        "status": "published",
        "published_at": "2024-06-01T10:00:00Z",
    }


def _write_json_line(file: IO[str], row: dict[str, Any]) -> None:
    file.write(json.dumps(row) + "\n")
